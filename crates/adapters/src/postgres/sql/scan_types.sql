-- Reads at most $2 jobs of each type, until $7 match. Returns those that match, and the last one read if there were $2 of them.
select a.ord, j.seq, j.matches, j.is_last
from unnest($4::int[]) with ordinality a (type_id, ord)
cross join lateral (
    select j.seq, j.matches, j.n = $2 as is_last
    from (
        select j.seq, j.n,
               {matches} as matches
        from (
            select j.*, row_number() over () as n
            from (
                select j.seq, j.id, j.state, j.queue_id, j.type_id, j.keys, j.pack, j.place, j.created_at
                from convoke_jobs j
                -- Rows, so that only the index of types has the order: by the primary key all newer jobs would be read.
                where row(j.type_id, j.seq) < row(a.type_id, $1::bigint)
                  and row(j.type_id, j.seq) >= row(a.type_id, $8::bigint)
                order by j.type_id desc, j.seq desc
                limit $2
            ) j
        ) j
        -- A fence: else the planner evaluates the condition twice, in the filter and in the result.
        offset 0
    ) j
    where j.matches or j.n = $2
    limit $7
) j
