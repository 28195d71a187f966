update jobs
set state = {pending}, due_at = ?2, rank = ?3, attempt_base = attempt,
    superseded = superseded + (execution_id is not null),
    scheduled_at = case when schedule is not null then scheduled_at end,
    run_end = null, channels_cleaned = 0,
    execution_id = null, worker = null, owner = null, ownership = {unowned}, progress = null, progress_message = null,
    dispatched_at = null, started_at = null, completed_at = null, deadline = null, result = null
where seq = ?1
