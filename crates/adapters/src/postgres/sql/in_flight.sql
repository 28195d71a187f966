{run}
where {range}
  and ($2::text is null or r.worker = $2)
  and ($3::text is null or r.owner = $3)
  and ($4::bigint is null or (r.started_at is null and r.worker is null and r.dispatched_at < $4))
  and ($5::bigint is null or (r.owner is null and r.dispatched_at < $5))
  and (not $6::boolean or r.ownership >= {handing_off})
  and (cardinality($7::uuid[]) = 0 or r.execution_id = any ($7))
  and (not $9::boolean or r.worker is null)
order by {order}
limit $8
