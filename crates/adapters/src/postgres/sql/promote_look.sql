-- Whether a promotion would change anything. No row: the epoch is not the sealed one.
select
    (select min(due_at) from convoke_waiting where scheduled) as next_due_at,
    exists (select from convoke_flights) or exists (select from convoke_flight_ends) or exists (select from convoke_count_deltas) as has_work
from convoke_cluster
where id = 1 and sealed = $1
