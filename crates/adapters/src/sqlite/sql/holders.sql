-- The workers (1) and the owners (0) of runs in flight: one index descent for each.
with recursive workers (name) as (
    select min(worker) from jobs indexed by jobs_of_worker where state in (3, 4) and worker is not null
    union all
    select (select min(j.worker) from jobs j indexed by jobs_of_worker where j.state in (3, 4) and j.worker > w.name)
    from workers w
    where w.name is not null
), owners (name) as (
    select min(owner) from jobs indexed by jobs_of_owner where state in (3, 4) and owner is not null
    union all
    select (select min(j.owner) from jobs j indexed by jobs_of_owner where j.state in (3, 4) and j.owner > o.name)
    from owners o
    where o.name is not null
)
select 1, name from workers where name is not null
union all
select 0, name from owners where name is not null
