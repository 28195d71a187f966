select execution_id, attempt, worker, state, error, started_at, completed_at, run_end
from jobs
where id = ?1 and superseded >= ?2 and execution_id is not null
