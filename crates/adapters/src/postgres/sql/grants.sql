select g.at, g.count
from convoke_queues q
join convoke_grants g on g.queue_id = q.id
where q.name = $1 and g.at >= $2
order by g.at, g.seq
