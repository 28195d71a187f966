-- Reads at most $2 jobs. Returns those that match, and the last one that was read if there were $2 of them.
select l.seq, l.matches, l.n = $2
from (
    select l.seq, l.n,
           ($3::int is null or l.queue_id = $3)
           and ($4::int is null or l.type_id = $4)
           and ($5::text is null or l.correlation_id = $5)
           and ($6::smallint[] is null
                or case when l.state >= 5 then l.state = any ($6)
                        -- Only a run in flight says whether a job is dispatched or running.
                        else $6 && '{1,2,3,4}'::smallint[]
                             and coalesce((select case when r.started_at is null then 3 else 4 end
                                           from convoke_runs r
                                           where r.id = l.id), l.state) = any ($6) end) as matches
    from (
        select j.seq, j.id, j.state, j.queue_id, j.type_id, j.correlation_id, row_number() over () as n
        from (
            select j.seq, j.id, j.state, j.queue_id, j.type_id, j.correlation_id
            from convoke_jobs j
            where {key} and j.seq < $1
            order by j.seq desc
            limit $2
        ) j
    ) l
) l
where l.matches or l.n = $2
order by l.seq desc
limit $7
