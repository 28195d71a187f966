update jobs
set state = ?2, completed_at = ?3, error = ?4, result = ?5, run_end = ?6, deadline = null, ownership = 0,
    channels_cleaned = (superseded = 0 and by_channel = 0)
where seq = ?1
