update jobs
set state = 3, execution_id = ?2, attempt = attempt + 1, dispatched_at = ?3
where seq = ?1 and state = 1
