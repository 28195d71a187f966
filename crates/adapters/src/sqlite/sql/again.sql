update jobs
set state = ?2, due_at = ?3, attempt = ?4, error = coalesce(?5, error),
    -- A schedule's job keeps its tick.
    scheduled_at = case when schedule is not null then scheduled_at when ?2 = 2 then ?3 end,
    superseded = superseded + 1, run_end = null,
    execution_id = null, worker = null, owner = null, progress = null, progress_message = null,
    dispatched_at = null, started_at = null
where seq = ?1
