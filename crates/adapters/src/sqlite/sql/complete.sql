-- The fast path of a plain completion: writes the result of `RunState::apply`.
update jobs
set state = {completed}, completed_at = ?3, result = ?4, error = null, deadline = null,
    worker = coalesce(?5, worker),
    owner = coalesce(?6, owner),
    ownership = {unowned},
    started_at = coalesce(started_at, ?7),
    progress = coalesce(?8, progress),
    progress_message = case when ?8 is null then progress_message else ?9 end,
    by_channel = max(by_channel, ?10),
    channels_cleaned = (superseded = 0 and by_channel = 0 and ?10 = 0)
where seq = ?1 and execution_id = ?2 and state in ({in_flight})
