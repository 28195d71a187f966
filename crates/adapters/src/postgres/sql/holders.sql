-- The workers (true) and the owners (false) of runs in flight: one index descent for each.
with recursive workers (name) as (
    (select r.worker from convoke_runs r where r.worker is not null order by r.worker limit 1)
    union all
    select (select r.worker from convoke_runs r where r.worker > w.name order by r.worker limit 1)
    from workers w
    where w.name is not null
), owners (name) as (
    (select r.owner from convoke_runs r where r.owner is not null order by r.owner limit 1)
    union all
    select (select r.owner from convoke_runs r where r.owner > o.name order by r.owner limit 1)
    from owners o
    where o.name is not null
)
select true as is_worker, name from workers where name is not null
union all
select false, name from owners where name is not null
