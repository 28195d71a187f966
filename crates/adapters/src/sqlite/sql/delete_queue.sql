update queues
set deleted = 1, paused = 0, rate_limit = null, rate_per = null, concurrency = null
where id = ?1
