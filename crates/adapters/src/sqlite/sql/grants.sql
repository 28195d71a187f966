select g.at, g.count
from queues q
join grants g on g.queue_id = q.id
where q.name = ?1 and g.at >= ?2
order by g.at, g.rowid
