update jobs
set state = ?2, due_at = ?3, rank = ?4, attempt = ?5, error = coalesce(?6, error),
    -- A schedule's job keeps its tick.
    scheduled_at = case when schedule is not null then scheduled_at when ?2 = {scheduled} then ?3 end,
    superseded = superseded + 1, run_end = null,
    execution_id = null, worker = null, owner = null, progress = null, progress_message = null,
    dispatched_at = null, started_at = null
where seq = ?1
