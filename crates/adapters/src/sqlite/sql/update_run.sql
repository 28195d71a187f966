update jobs
set state = ?3, worker = ?4, owner = ?5, ownership = ?6, started_at = ?7, deadline = ?8, progress = ?9,
    progress_message = ?10, by_channel = ?11, log_seq = ?12, run_log_next = ?13, run_log_kept = ?14
where seq = ?1 and execution_id = ?2 and state in ({in_flight})
