update jobs
set state = ?3,
    worker = coalesce(?4, worker),
    owner = coalesce(?5, owner),
    ownership = coalesce(?6, ownership),
    started_at = ?7,
    deadline = coalesce(?8, deadline),
    progress = coalesce(?9, progress),
    progress_message = case when ?9 is null then progress_message else ?10 end,
    by_channel = max(by_channel, ?11),
    log_seq = ?12
where seq = ?1 and execution_id = ?2 and state in (3, 4)
