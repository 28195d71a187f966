select seq, execution_id, state, run_end, queue_id, type_id, attempt, attempt_base, due_at, started_at, timeout,
       max_retries, retry_initial, retry_multiplier, retry_max, retry_jitter, log_seq, owner, run_log_next, run_log_kept,
       deadline, worker, ownership, progress, progress_message, by_channel, superseded > 0
from jobs
where id = ?1
