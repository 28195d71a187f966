-- The workers (true) and the owners (false) of runs in flight: one index descent for each. An owner may be twice.
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
), dispatched_to (name) as (
    (select f.owner from convoke_flights f where f.owner is not null order by f.owner limit 1)
    union all
    select (select f.owner from convoke_flights f where f.owner > o.name order by f.owner limit 1)
    from dispatched_to o
    where o.name is not null
)
select true as is_worker, name from workers where name is not null
union all
select false, name from owners where name is not null
union all
-- One run that has not ended is enough. It is among the newest.
select false, o.name
from dispatched_to o
where exists (
    select 1
    from (select f.pack, f.seqs from convoke_flights f where f.owner = o.name order by f.owner desc, f.pack desc offset 0) f
    cross join lateral unnest(f.seqs) s (seq)
    cross join lateral (
        select 1 from convoke_jobs j where j.seq = s.seq and j.pack = f.pack and j.state < {first_ended} offset 0
    ) j
)
