update convoke_queues
set paused = coalesce($2, paused),
    rate_limit = case when $3::boolean then $4 else rate_limit end,
    rate_per = case when $3::boolean then $5 else rate_per end,
    concurrency = case when $6::boolean then $7 else concurrency end
where id = $1
