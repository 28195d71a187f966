-- Deletes rows of flights all of whose runs have completed.
with gone as (
    delete from convoke_flight_ends where ctid = any (array(select ctid from convoke_flight_ends limit $1)) returning pack, first, count
), sums as materialized (
    select pack, first, sum(count)::int as count from gone group by pack, first
), over as (
    delete from convoke_flights f
    using sums s
    where f.pack = s.pack and f.first = s.first and cardinality(f.seqs) = s.count
)
insert into convoke_flight_ends (pack, first, count)
select s.pack, s.first, s.count
from sums s
join convoke_flights f on f.pack = s.pack and f.first = s.first
where cardinality(f.seqs) > s.count
