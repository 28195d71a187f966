-- Members that died or left: nothing is pending for them, and they do not come back under their names.
delete from convoke_bus_members m
where m.queue = $1 and m.group_name = $2 and (m.has_left or m.read_at < now() - make_interval(secs => $3))
  and not exists (select 1 from convoke_bus_entries e
                  where e.queue = m.queue and e.group_name = m.group_name and e.member = m.name)
