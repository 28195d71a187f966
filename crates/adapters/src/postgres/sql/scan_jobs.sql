-- Reads at most $2 jobs. Returns those that match, and the last one read if there were $2 of them.
select j.seq, j.matches, j.n = $2 as is_last
from (
    select j.seq, j.n,
           {matches} as matches
    from (
        select j.*, row_number() over () as n
        from (
            select {seq} as seq, j.id, j.state, j.queue_id, j.type_id, j.keys, j.pack, j.place, j.created_at
            from {jobs} and {range}
            order by {order}
            limit $2
        ) j
    ) j
    -- A fence: else the planner evaluates the condition twice, in the filter and in the result.
    offset 0
) j
where j.matches or j.n = $2
{sorted}
limit $7
