-- The workers (1) and the owners (0) of runs in flight: one index descent for each.
with recursive workers (name) as (
    select min(worker) from jobs indexed by jobs_of_worker where state in ({in_flight}) and worker is not null
    union all
    select (select min(j.worker) from jobs j indexed by jobs_of_worker where j.state in ({in_flight}) and j.worker > w.name)
    from workers w
    where w.name is not null
), owners (name) as (
    select min(owner) from jobs indexed by jobs_in_flight where state in ({in_flight}) and owner is not null
    union all
    select (select min(j.owner) from jobs j indexed by jobs_in_flight where j.state in ({in_flight}) and j.owner > o.name)
    from owners o
    where o.name is not null
)
select 1 as is_worker, name from workers where name is not null
union all
select 0, name from owners where name is not null
