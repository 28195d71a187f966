-- Reads at most $2 jobs of each type.
select a.ord, j.seq,
       {matches} as matches
from unnest($4::int[]) with ordinality a (type_id, ord)
cross join lateral (
    select j.seq, j.id, j.state, j.queue_id, j.type_id, j.keys, j.pack, j.place, j.created_at
    from convoke_jobs j
    where j.type_id = a.type_id and j.seq < $1 and j.seq >= $8::bigint
    order by j.seq desc
    limit $2
) j
where $7::bigint > 0
