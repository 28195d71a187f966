insert into executions (job, number, execution_id, attempt, status, worker, started_at, ended_at, error)
select seq, superseded, execution_id, attempt, ?2, worker, started_at, ?3, ?4
from jobs
where seq = ?1 and execution_id is not null
