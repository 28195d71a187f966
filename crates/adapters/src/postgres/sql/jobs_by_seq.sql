select j.id, t.name, q.name,
       (case when r.id is null then j.state when r.started_at is null then 3 else 4 end)::smallint,
       j.priority, j.args, coalesce(r.attempt, j.attempt), j.attempt_base, j.max_retries,
       j.retry_initial, j.retry_multiplier, j.retry_max, j.retry_jitter,
       coalesce(r.execution_id, j.execution_id), coalesce(r.ownership, 0::smallint), coalesce(r.owner, j.owner),
       coalesce(r.worker, j.worker), j.correlation_id, j.unique_key, j.timeout,
       coalesce(r.progress, j.progress), coalesce(r.progress_message, j.progress_message), j.result, j.error, j.schedule,
       j.created_at, j.scheduled_at, coalesce(r.dispatched_at, j.dispatched_at), coalesce(r.started_at, j.started_at),
       j.completed_at,
       j.state >= 5 and not exists (
           select 1 from convoke_uncleaned u where u.completed_at = j.completed_at and u.seq = j.seq
       )
from (
    -- As many as fit the bytes, but at least one. A length is known without reading what is long.
    select s.seq,
           sum(octet_length(s.args) + coalesce(octet_length(s.result), 0) + coalesce(octet_length(s.error), 0))
               over (order by s.seq desc) as bytes,
           row_number() over (order by s.seq desc) as place
    from convoke_jobs s
    where s.seq = any ($1::bigint[])
) s
join convoke_jobs j on j.seq = s.seq
join convoke_queues q on q.id = j.queue_id
join convoke_types t on t.id = j.type_id
left join convoke_runs r on r.id = j.id
where s.bytes <= $2 or s.place = 1
order by j.seq desc
