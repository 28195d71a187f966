-- Ends jobs that wait or run. A job that moves meanwhile, from waiting to a run or back, is left to the next attempt.
with run as (
    delete from convoke_runs r
    where r.id = any ($1::uuid[])
    returning r.seq, case when r.started_at is null then {dispatched} else {running} end as was, r.execution_id, r.attempt,
              r.dispatched_at, r.started_at, r.worker, r.owner, r.progress, r.progress_message, r.log_seq
), found as materialized (
    select w.tid
    from convoke_jobs j
    cross join lateral (
        select w.ctid as tid
        from convoke_waiting w
        where w.queue_id = j.queue_id and w.rank = j.due_at - j.priority * {head_start_us} and w.seq = j.seq
          and not w.scheduled
        union all
        select w.ctid from convoke_waiting w where w.due_at = j.due_at and w.seq = j.seq and w.scheduled
    ) w
    where j.id = any ($1::uuid[]) and j.state < {first_ended}
), waiting as (
    delete from convoke_waiting where ctid = any (array(select tid from found))
    returning seq, case when scheduled then {scheduled} else {pending} end as was
), caught as (
    select * from run
    union all
    select seq, was, null, null, null, null, null, null, null, null, null from waiting
), ended as (
    update convoke_jobs j
    set state = {cancelled}, completed_at = $2::bigint, error = $3::text, run_end = {run_cancelled},
        execution_id = c.execution_id, attempt = coalesce(c.attempt, j.attempt), dispatched_at = c.dispatched_at,
        started_at = c.started_at, worker = c.worker, owner = c.owner, progress = c.progress,
        progress_message = c.progress_message, log_seq = coalesce(c.log_seq, j.log_seq)
    from caught c
    where j.seq = c.seq
    returning j.seq, j.id, j.queue_id, c.was, c.execution_id, j.superseded > 0 or j.execution_id is not null as unclean
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select $2::bigint, seq, id from ended where unclean
), kept as (
    insert into convoke_ended (seq, completed_at, queue_id, state) select seq, $2::bigint, queue_id, {cancelled} from ended
)
select id, queue_id, was::smallint as was, execution_id from ended
