update jobs
set state = ?2, completed_at = ?3, error = ?4, result = ?5, run_end = ?6, channels_cleaned = ?7
where seq = ?1
