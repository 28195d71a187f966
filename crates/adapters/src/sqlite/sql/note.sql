update jobs
set state = ?3,
    worker = coalesce(?4, worker),
    -- An owner that is named again leaves a handoff in progress as it is.
    ownership = case when ?5 is null or ?5 is owner then ownership else 1 end,
    owner = coalesce(?5, owner),
    started_at = ?6,
    deadline = coalesce(?7, deadline),
    progress = coalesce(?8, progress),
    progress_message = case when ?8 is null then progress_message else ?9 end,
    by_channel = max(by_channel, ?10),
    log_seq = ?11,
    run_log_next = ?12,
    run_log_kept = ?13
where seq = ?1 and execution_id = ?2 and state in (3, 4)
