select j.id, j.execution_id, t.name, q.name, j.attempt, j.state, j.worker, j.owner, j.ownership, j.dispatched_at, j.deadline
from jobs j indexed by jobs_deadline
cross join types t on t.id = j.type_id
cross join queues q on q.id = j.queue_id
where j.deadline is not null
order by j.deadline
limit ?1
