update queues
set pending = ?2, scheduled = ?3, dispatched = ?4, running = ?5,
    completed = ?6, failed = ?7, timed_out = ?8, cancelled = ?9
where id = ?1
