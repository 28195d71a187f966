select a.ord, e.seq,
       (not $6::boolean
        or exists (
            select 1
            from convoke_jobs j
            where j.seq = e.seq and ($5::int[] is null or j.type_id = any ($5))
              and j.created_at >= $8::bigint and j.created_at < $9::bigint
        )) as matches
from unnest($1::smallint[], $2::int[]) with ordinality a (state, queue_id, ord)
cross join lateral (
    select e.seq
    from convoke_ended e
    where e.state = a.state and e.queue_id = a.queue_id and e.seq < $3 and e.seq >= $7::bigint
    order by e.seq desc
    limit $4
) e
