select j.id, t.name, q.name, j.state, j.priority, j.args, j.attempt, j.attempt_base, j.max_retries,
       j.retry_initial, j.retry_multiplier, j.retry_max, j.retry_jitter,
       j.execution_id, j.ownership, j.owner, j.worker, j.correlation_id, j.unique_key, j.timeout,
       j.progress, j.progress_message, j.result, j.error, j.schedule,
       j.created_at, j.scheduled_at, j.dispatched_at, j.started_at, j.completed_at, j.channels_cleaned
from jobs j
join queues q on q.id = j.queue_id
join types t on t.id = j.type_id
where j.seq = ?1
