select {columns}
from jobs indexed by jobs_pending
where queue_id = ?1 and state = {pending}
order by rank, seq
limit ?2
