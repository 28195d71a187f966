select e.execution_id, e.attempt, e.worker, e.status, e.error, e.started_at, e.ended_at
from convoke_jobs j
join convoke_executions e on e.job = j.seq
where j.id = $1 and e.number >= $2
order by e.number
limit $3
