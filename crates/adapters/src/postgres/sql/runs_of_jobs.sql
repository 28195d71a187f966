-- The runs of these jobs.
found as materialized (
    select j.tid, j.id, j.pack, f.execution_id, f.dispatched_at, f.owner
    from unnest($1::uuid[]) s (id)
    cross join lateral (
        select j.ctid as tid, j.id, j.pack, j.place, j.state from convoke_jobs j where j.id = s.id offset 0
    ) j
    cross join lateral ({flight}) f
    where f.execution_id is not null
    order by j.id
)
