-- The fast path of completions: writes the result of RunState::apply for runs that report only their end.
with given as (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::bigint[],
                $9::text[], $10::boolean[], $11::boolean[])
         as s (id, execution_id, started_at, worker, owner, progress, progress_message, at, result, if_free, by_channel)
), {over}, ended as (
    update convoke_jobs j
    set state = {completed}, completed_at = o.at, result = o.result, error = null, run_end = {run_completed},
        execution_id = o.execution_id, attempt = o.attempt, dispatched_at = o.dispatched_at, started_at = o.started_at,
        worker = o.worker, owner = o.owner, progress = o.progress, progress_message = o.progress_message,
        log_seq = o.log_seq
    from over o
    where j.ctid = o.job and j.id is not distinct from o.id
    returning j.seq, j.id, j.queue_id, j.document, o.attempt, o.due_at, o.started_at, o.at, o.ran,
              o.by_channel or j.superseded > 0 as unclean
), kept as (
    insert into convoke_ended (seq, completed_at, queue_id, state) select seq, at, queue_id, {completed}
    from ended
    where convoke_whole((select count(*) from over), (select count(*) from ended))
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select at, seq, id from ended where unclean
), counted as (
    insert into convoke_counts as c (queue_id, slot, dispatched, running, completed)
    select queue_id, $12::smallint, -count(*) filter (where not ran), -count(*) filter (where ran), count(*)
    from ended
    group by queue_id
    order by queue_id
    on conflict (queue_id, slot) do update
    set dispatched = c.dispatched + excluded.dispatched, running = c.running + excluded.running,
        completed = c.completed + excluded.completed
)
select id, document, attempt, due_at, started_at from ended
