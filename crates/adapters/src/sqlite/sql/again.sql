update jobs
set state = ?2, due_at = ?3, attempt = ?4, error = coalesce(?5, error),
    scheduled_at = case when ?2 = 2 and schedule is null then ?3 else scheduled_at end,
    superseded = superseded + 1, running = 0, run_end = null,
    execution_id = null, worker = null, owner = null, ownership = 0, progress = null, progress_message = null,
    dispatched_at = null, started_at = null, deadline = null
where seq = ?1
