update jobs
set state = 8, completed_at = ?3, error = ?2, deadline = null, run_end = null, ownership = 0,
    channels_cleaned = (superseded = 0 and execution_id is null)
where id = ?1 and state < 5
returning queue_id
