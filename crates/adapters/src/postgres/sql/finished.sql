-- Reads at most $4 jobs of each range, until $10 match. Returns those that match, and the last one read if there were $4 of them.
select a.ord, e.seq, e.matches, e.is_last
from unnest($1::smallint[], $2::int[]) with ordinality a (state, queue_id, ord)
cross join lateral (
    select e.seq, e.matches, e.n = $4 as is_last
    from (
        select e.seq, e.n,
               (not $6::boolean
                or exists (
                    select 1
                    from convoke_jobs j
                    where j.seq = e.seq and ($5::int[] is null or j.type_id = any ($5))
                      and j.created_at >= $8::bigint and j.created_at < $9::bigint
                )) as matches
        from (
            select e.seq, row_number() over () as n
            from (
                select e.seq
                from convoke_ended e
                where e.state = a.state and e.queue_id = a.queue_id and e.seq < $3 and e.seq >= $7::bigint
                order by e.seq desc
                limit $4
            ) e
        ) e
        -- A fence: else the planner evaluates the condition twice, in the filter and in the result.
        offset 0
    ) e
    where e.matches or e.n = $4
    limit $10
) e
