update jobs
set state = 3, execution_id = ?2, attempt = attempt + 1, running = 0, dispatched_at = ?3
where seq = ?1 and state = 1
returning id, type_id, args, attempt, max_retries, timeout, correlation_id
