with said as materialized (
    select *
    from unnest($1::bigint[], $2::uuid[], $3::int[], $4::bigint[], $5::bigint[], $6::text[], $7::text[], $8::smallint[],
                $9::text[], $10::bigint[])
         as s (seq, execution_id, attempt, dispatched_at, started_at, worker, owner, progress, progress_message, log_seq)
), ended as (
    update convoke_jobs j
    set state = 8, completed_at = $11::bigint, error = $12::text, run_end = null, execution_id = s.execution_id,
        attempt = coalesce(s.attempt, j.attempt), dispatched_at = s.dispatched_at, started_at = s.started_at,
        worker = s.worker, owner = s.owner, progress = s.progress, progress_message = s.progress_message,
        log_seq = coalesce(s.log_seq, j.log_seq)
    from said s
    where j.seq = s.seq
    returning j.seq, j.id, j.queue_id, j.superseded > 0 or j.execution_id is not null as unclean
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select $11::bigint, seq, id from ended where unclean
), kept as (
    insert into convoke_ended (seq, completed_at, queue_id, state) select seq, $11::bigint, queue_id, 8 from ended
)
select id, queue_id from ended
