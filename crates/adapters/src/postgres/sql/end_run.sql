present as materialized (
    -- Each run is looked up by its key and written at its ctid, so that the server has no other plan, whatever its
    -- estimates of the sizes of tables.
    select s.*, r.tid, j.tid as job
    from given s
    cross join lateral (select r.ctid as tid, r.seq from convoke_runs r where r.id = s.id offset 0) r
    cross join lateral (select j.ctid as tid from convoke_jobs j where j.seq = r.seq offset 0) j
), over as (
    -- The fence of a run: its execution.
    delete from convoke_runs r
    using present s
    where r.ctid = s.tid and r.execution_id = s.execution_id
    returning s.*, r.attempt, r.dispatched_at
)
