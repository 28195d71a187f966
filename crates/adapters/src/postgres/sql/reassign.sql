update convoke_runs r
set owner = coalesce(s.taker, r.owner), ownership = s.ownership
from unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::smallint[], $6::bigint[])
     as s (id, execution_id, giver, taker, ownership, ord)
where r.id = s.id and r.execution_id = s.execution_id
  and (r.owner = s.giver or (s.taker is not null and (r.owner is null or r.ownership = {orphan_pending})))
returning s.ord
