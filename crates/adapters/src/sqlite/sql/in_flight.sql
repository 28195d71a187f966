select j.id, j.execution_id, t.name, q.name, j.attempt, j.state, j.worker, j.owner, j.ownership, j.dispatched_at
from jobs j indexed by jobs_in_flight
cross join types t on t.id = j.type_id
cross join queues q on q.id = j.queue_id
where j.state in (3, 4)
  and j.id > ?1
  and (?2 is null or j.worker = ?2)
  and (?3 is null or j.owner = ?3)
  and (?4 is null or (j.state = 3 and j.worker is null and j.dispatched_at < ?4))
  and (not ?5 or j.ownership >= 2)
order by j.id
limit ?6
