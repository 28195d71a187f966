-- Returns a row if list_by_status.sql would read more than $6 rows. Only pending jobs have an index by queue.
select 1
from (
    select 1 from convoke_waiting w cross join unnest(w.seqs) where $2::boolean and not w.scheduled and {waiting}
    union all
    select 1 from convoke_waiting w where $3::boolean and w.scheduled
    union all
    select 1 from convoke_runs r where $4::boolean
    union all
    select 1 from convoke_flights f cross join unnest(f.seqs) where $4::boolean
    union all
    select 1 from convoke_ended e where e.state = any ($5::smallint[])
    union all
    select 1 from convoke_completed c cross join unnest(c.seqs) where {completed} = any ($5::smallint[])
) g
offset $6
limit 1
