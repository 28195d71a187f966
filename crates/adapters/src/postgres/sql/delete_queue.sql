update convoke_queues
set deleted = true, paused = false, rate_limit = null, rate_per = null, concurrency = null
where name = $1
