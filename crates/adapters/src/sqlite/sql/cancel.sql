update jobs
set state = {cancelled}, completed_at = ?3, error = ?2, deadline = null, run_end = null, ownership = {unowned},
    channels_cleaned = (superseded = 0 and execution_id is null)
where id = ?1 and state < {first_ended}
returning queue_id
