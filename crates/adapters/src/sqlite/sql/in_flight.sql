select j.id, j.execution_id, t.name, q.name, j.attempt, j.state, j.worker, j.owner, j.ownership, j.dispatched_at
from jobs j indexed by {index}
cross join types t on t.id = j.type_id
cross join queues q on q.id = j.queue_id
where j.state in (3, 4)
  and j.id > ?1
  and {key}
  and (?2 is null or j.worker = ?2)
  and (?3 is null or j.owner = ?3)
  and (?4 is null or (j.state = 3 and j.worker is null and j.dispatched_at < ?4))
  and (?5 is null or (j.owner is null and j.dispatched_at < ?5))
  and (not ?6 or j.ownership >= 2)
  and (?7 is null or hex(j.execution_id) in (select value from json_each(?7)))
  and (not ?9 or j.worker is null)
order by j.id
limit ?8
