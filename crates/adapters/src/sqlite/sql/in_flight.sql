select {columns}
from jobs indexed by {index}
where state in ({in_flight})
  and id > ?1
  and {key}
  and (?2 is null or worker = ?2)
  and (?3 is null or owner = ?3)
  and (?4 is null or (state = {dispatched} and worker is null and dispatched_at < ?4))
  and (?5 is null or (owner is null and dispatched_at < ?5))
  and (not ?6 or ownership in ({handing_off}, {orphan_pending}))
  and (?7 is null or hex(execution_id) in (select value from json_each(?7)))
  and (not ?9 or worker is null)
order by id
limit ?8
