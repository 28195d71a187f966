with given as (
    select *
    from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::bigint[],
                $9::smallint[], $10::bigint[], $11::int[], $12::text[], $13::smallint[], $14::bigint[])
         as s (id, execution_id, started_at, worker, owner, progress, progress_message, log_seq, state, due_at, counted,
               error, ended_as, ended_at)
), {over}, job as (
    update convoke_jobs j
    set state = o.state, due_at = o.due_at, attempt = o.counted, error = coalesce(o.error, j.error),
        -- For a job of a schedule it stays the tick.
        scheduled_at = case when j.schedule is not null then j.scheduled_at when o.state = {scheduled} then o.due_at end,
        superseded = j.superseded + 1, log_seq = o.log_seq, pack = default, place = 0
    from over o
    where j.ctid = o.job and j.id is not distinct from o.id
    returning j.seq, j.due_at, j.queue_id, octet_length(j.args) as args_bytes, j.priority, j.state, j.schedule, j.pack,
              j.superseded - 1 as number, o.execution_id, o.attempt, o.ended_as, o.started_at, o.ended_at, o.worker, o.error
), waiting as (
    insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, schedule, seqs, ranks, args_bytes)
    select pack, due_at, rank, queue_id, 0, priority, state = {scheduled}, schedule, array[seq], array[rank],
           array[args_bytes]
    from (select *, due_at - priority * {head_start_us} as rank from job) j
)
insert into convoke_executions (job, number, execution_id, attempt, status, started_at, ended_at, worker, error)
select seq, number, execution_id, attempt, ended_as, started_at, ended_at, worker, error
from job
where convoke_whole((select count(*) from over), (select count(*) from job))
