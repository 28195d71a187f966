select e.number, e.execution_id, e.attempt, e.worker, e.status, e.error, e.started_at, e.ended_at, null as state
from jobs j
join executions e on e.job = j.seq
where j.id = ?1 and e.number >= ?2
union all
-- The present run. While it is in flight, the row has the error of the run before.
select superseded, execution_id, attempt, worker, run_end, iif(state < {first_ended}, null, error), started_at,
       completed_at, state
from jobs
where id = ?1 and superseded >= ?2 and execution_id is not null
order by number
