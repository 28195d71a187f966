with given as (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::bigint[],
                $9::smallint[], $10::bigint[], $11::text[], $12::text[], $13::smallint[], $14::boolean[])
         as s (id, execution_id, started_at, worker, owner, progress, progress_message, log_seq, state, at, error, result,
               run_end, unclean)
), {over}, ended as (
    update convoke_jobs j
    set state = o.state, completed_at = o.at, result = o.result, error = o.error, run_end = o.run_end,
        execution_id = o.execution_id, attempt = o.attempt, dispatched_at = o.dispatched_at, started_at = o.started_at,
        worker = o.worker, owner = o.owner, progress = o.progress, progress_message = o.progress_message,
        log_seq = o.log_seq
    from over o
    where j.ctid = o.job and j.id is not distinct from o.id
    returning j.seq, j.id, j.queue_id, j.state, o.at, o.unclean
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select at, seq, id from ended where unclean
), completed as (
    insert into convoke_completed (first_at, seqs)
    select min(at), array_agg(seq) from ended where state = {completed} group by seq >> 9
)
insert into convoke_ended (seq, completed_at, queue_id, state)
select seq, at, queue_id, state
from ended
where state <> {completed} and convoke_whole((select count(*) from over), (select count(*) from ended))
