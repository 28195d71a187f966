update jobs
set state = {dispatched}, execution_id = ?2, attempt = attempt + 1, dispatched_at = ?3, run_log_next = 0, run_log_kept = 0
where seq = ?1 and state = {pending}
