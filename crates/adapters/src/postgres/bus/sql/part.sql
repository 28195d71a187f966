delete from convoke_bus_members m
where m.queue = $1 and m.group_name = $2 and m.name = $3
  and not exists (select 1 from convoke_bus_entries e
                  where e.queue = m.queue and e.group_name = m.group_name and e.member = m.name)
