select case
    when exists (select 1 from convoke_bus_groups where queue = $1 and name = $2) then
        (select count(*) from (select 1 from convoke_bus_entries e
                               where e.queue = $1 and e.member is null and e.copy_for in ('', $2) limit $3) c)
    else (select count(*) from (select distinct e.id from convoke_bus_entries e where e.queue = $1 limit $3) c)
end as backlog
