-- Ends jobs that wait or run. A job that moves meanwhile, from waiting to a run or back, is left to the next attempt.
with found as materialized (
    select j.seq, j.pack, j.place, w.tid, f.execution_id, f.dispatched_at, f.owner
    from convoke_jobs j
    left join lateral (
        select w.ctid as tid
        from convoke_waiting w
        where w.pack = j.pack and w.first <= j.place and w.first + cardinality(w.seqs) > j.place
        order by w.first desc
        limit 1
    ) w on true
    left join lateral ({flight}) f on true
    where j.id = any ($1::uuid[]) and j.state < {first_ended}
), run as (
    delete from convoke_runs r
    where r.id = any ($1::uuid[])
    returning r.seq, 0::bigint as pack, case when r.started_at is null then {dispatched} else {running} end as was,
              r.execution_id, r.dispatched_at, r.started_at, r.worker, r.owner, r.progress, r.progress_message, r.log_seq
), waiting as (
    delete from convoke_waiting w
    using (select tid, array_agg(place) as places from found where tid is not null group by tid) c
    where w.ctid = c.tid
    returning w.*, c.places
), kept as (
-- The rest of their rows: each part without a gap.
    insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, schedule, seqs, ranks, args_bytes)
    select w.pack, min(u.rank) + w.priority * {head_start_us}, min(u.rank), w.queue_id, w.first + min(u.n) - 1, w.priority,
           w.scheduled, w.schedule, array_agg(u.seq order by u.n), array_agg(u.rank order by u.n),
           array_agg(u.bytes order by u.n)
    from waiting w
    cross join lateral (
        select u.*, u.n - row_number() over (order by u.n) as part
        from unnest(w.seqs, w.ranks, w.args_bytes) with ordinality u (seq, rank, bytes, n)
        where w.first + u.n - 1 <> all (w.places)
    ) u
    group by w.pack, w.first, w.queue_id, w.priority, w.scheduled, w.schedule, u.part
), caught as (
    select * from run
    union all
    select seq, pack, {dispatched}, execution_id, dispatched_at, null, null, owner, null, null, null
    from found
    where execution_id is not null
    union all
    select w.seqs[p.place - w.first + 1], w.pack, case when w.scheduled then {scheduled} else {pending} end, null, null, null,
           null, null, null, null, null
    from waiting w
    cross join lateral unnest(w.places) p (place)
), ended as (
    update convoke_jobs j
    set state = {cancelled}, completed_at = $2::bigint, error = $3::text, run_end = {run_cancelled},
        execution_id = c.execution_id, attempt = j.attempt + (c.execution_id is not null)::int,
        dispatched_at = c.dispatched_at, started_at = c.started_at, worker = c.worker, owner = c.owner,
        progress = c.progress, progress_message = c.progress_message, log_seq = coalesce(c.log_seq, j.log_seq)
    from (
        select c.*, j.tid
        from caught c
        cross join lateral (select j.ctid as tid, j.id from convoke_jobs j where j.seq = c.seq offset 0) j
        -- As every writer does: prevents deadlocks.
        order by j.id
    ) c
    where j.ctid = c.tid and j.pack is not distinct from c.pack and j.state < {first_ended}
    returning j.seq, j.id, j.queue_id, c.was, c.execution_id, j.superseded > 0 or j.execution_id is not null as unclean
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select $2::bigint, seq, id from ended where unclean
), retained as (
    insert into convoke_ended (seq, completed_at, queue_id, state) select seq, $2::bigint, queue_id, {cancelled} from ended
)
select id, queue_id, was::smallint as was, execution_id from ended
