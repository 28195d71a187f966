with unread as (
    select q.name
    from unnest($1::text[]) as q (name)
    where not exists (select 1 from convoke_bus_entries e where e.queue = q.name)
      and not exists (select 1 from convoke_bus_members m
                      where m.queue = q.name and m.read_at > now() - make_interval(secs => $2))
),
members as (
    delete from convoke_bus_members m using unread u where m.queue = u.name
)
delete from convoke_bus_groups g using unread u where g.queue = u.name
