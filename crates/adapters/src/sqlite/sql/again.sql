update jobs
set state = ?2, due_at = ?3, attempt = ?4, error = coalesce(?5, error),
    -- Of a schedule's job it stays the tick.
    scheduled_at = case when schedule is not null then scheduled_at when ?2 = 2 then ?3 end,
    superseded = superseded + 1, run_end = null,
    execution_id = null, worker = null, owner = null, ownership = 0, progress = null, progress_message = null,
    dispatched_at = null, started_at = null, deadline = null
where seq = ?1
