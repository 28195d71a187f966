-- Reads at most $2 jobs. Returns those that match, and the last one read if there were $2 of them.
select l.seq, l.matches, l.n = $2 as is_last
from (
    select l.seq, l.n,
           ($3::int is null or l.queue_id = $3)
           and ($4::int is null or l.type_id = $4)
           and (cardinality($5::text[]) = 0 or l.keys @> $5)
           and ($6::smallint[] is null
                or case when l.state >= {first_ended} then l.state = any ($6)
                        -- A job is dispatched or running only if it has a run in flight.
                        else $6 && array[{live}]::smallint[]
                             and coalesce((select case when r.started_at is null then {dispatched} else {running} end
                                           from convoke_runs r
                                           where r.id = l.id), l.state) = any ($6) end) as matches
    from (
        select j.*, row_number() over () as n
        from (
            select {seq} as seq, j.id, j.state, j.queue_id, j.type_id, j.keys
            from {jobs} and {seq} < $1
            order by {seq} desc
            limit $2
        ) j
    ) l
) l
where l.matches or l.n = $2
order by l.seq desc
limit $7
