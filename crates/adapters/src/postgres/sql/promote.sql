with ready as (
    update convoke_waiting set scheduled = false
    where ctid = any (array(
        select ctid from convoke_waiting where scheduled and due_at <= $1 order by due_at, pack limit $2
    ))
    returning seqs[1] as seq, queue_id
), updated as (
    update convoke_jobs j set state = {pending} from ready r where j.seq = r.seq
)
select q.id as queue_id, q.name, r.count
from (select queue_id, count(*) from ready group by queue_id) r
join convoke_queues q on q.id = r.queue_id
