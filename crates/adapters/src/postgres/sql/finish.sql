with said as materialized (
    select s.*, r.tid, r.seq, r.attempt as ran_as, r.dispatched_at, j.tid as job
    from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::bigint[], $5::text[], $6::text[], $7::smallint[],
                $8::bigint[], $9::text[], $10::text[], $11::smallint[], $12::text[], $13::boolean[], $14::bigint[])
         as s (id, execution_id, state, at, error, result, run_end, started_at, worker, owner, progress, progress_message,
               unclean, log_seq)
    cross join lateral (
        select r.ctid as tid, r.seq, r.attempt, r.dispatched_at from convoke_runs r where r.id = s.id offset 0
    ) r
    cross join lateral (select j.ctid as tid from convoke_jobs j where j.seq = r.seq offset 0) j
), over as (
    delete from convoke_runs r
    using said s
    where r.ctid = s.tid and r.execution_id = s.execution_id
    returning s.*
), ended as (
    update convoke_jobs j
    set state = o.state, completed_at = o.at, result = o.result, error = o.error, run_end = o.run_end,
        execution_id = o.execution_id, attempt = o.ran_as, dispatched_at = o.dispatched_at, started_at = o.started_at,
        worker = o.worker, owner = o.owner, progress = o.progress, progress_message = o.progress_message,
        log_seq = o.log_seq
    from over o
    where j.ctid = o.job and j.id is not distinct from o.id
    returning j.seq, j.id, j.queue_id, j.state, o.at, o.unclean
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select at, seq, id from ended where unclean
)
insert into convoke_ended (seq, completed_at, queue_id, state)
select seq, at, queue_id, state
from ended
where convoke_whole((select count(*) from over), (select count(*) from ended))
