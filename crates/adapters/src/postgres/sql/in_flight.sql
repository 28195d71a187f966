select r.id, r.execution_id, t.name, q.name, r.attempt, r.started_at is not null, r.worker, r.owner, r.ownership,
       r.dispatched_at
from convoke_runs r
join convoke_types t on t.id = r.type_id
join convoke_queues q on q.id = r.queue_id
where {range}
  and ($2::text is null or r.worker = $2)
  and ($3::text is null or r.owner = $3)
  and ($4::bigint is null or (r.started_at is null and r.worker is null and r.dispatched_at < $4))
  and ($5::bigint is null or (r.owner is null and r.dispatched_at < $5))
  and (not $6::boolean or r.ownership >= 2)
  and (cardinality($7::uuid[]) = 0 or r.execution_id = any ($7))
  and (not $9::boolean or r.worker is null)
order by {order}
limit $8
