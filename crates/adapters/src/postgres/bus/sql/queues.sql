-- Steps from name to name over the index, whatever the number of entries of each.
with recursive named as (
    (select queue from convoke_bus_entries where queue >= $1 and queue < $2 order by queue limit 1)
    union all
    select (select e.queue from convoke_bus_entries e where e.queue > n.queue and e.queue < $2 order by e.queue limit 1)
    from named n
    where n.queue is not null
)
select queue from named where queue is not null
union
select queue from convoke_bus_groups where queue >= $1 and queue < $2
