select r.id, r.execution_id, t.name, q.name, r.attempt, r.started_at is not null, r.worker, r.owner, r.ownership,
       r.dispatched_at, r.deadline
from convoke_runs r
join convoke_types t on t.id = r.type_id
join convoke_queues q on q.id = r.queue_id
where r.deadline is not null
order by r.deadline
limit $1
