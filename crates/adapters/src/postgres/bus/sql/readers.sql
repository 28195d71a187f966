select q.place, g.name is not null as has_group, m.name, m.pending, m.idle_ms
from unnest($1::text[]) with ordinality as q (name, place)
left join convoke_bus_groups g on g.queue = q.name and g.name = $2
left join lateral (
    select p.name, p.pending, p.idle_ms
    from (
        select m.name, m.has_left,
               (select count(*) from convoke_bus_entries e
                where e.queue = q.name and e.group_name = $2 and e.member = m.name) as pending,
               greatest(0, extract(epoch from now() - m.read_at) * 1000)::bigint as idle_ms
        from convoke_bus_members m
        where m.queue = q.name and m.group_name = $2
    ) p
    where p.pending > 0 or (not p.has_left and p.idle_ms < $3)
    order by p.name
    limit $4
) m on g.name is not null
order by q.place, m.name
