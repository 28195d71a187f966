with said as materialized (
    select s.*, r.tid, r.seq, r.attempt as ran_as, r.dispatched_at, j.tid as job
    from unnest($1::uuid[], $2::uuid[], $3::smallint[], $4::bigint[], $5::int[], $6::text[], $7::smallint[], $8::bigint[],
                $9::bigint[], $10::text[], $11::bigint[])
         as s (id, execution_id, state, due_at, attempt, error, ended_as, ended_at, started_at, worker, log_seq)
    cross join lateral (
        select r.ctid as tid, r.seq, r.attempt, r.dispatched_at from convoke_runs r where r.id = s.id offset 0
    ) r
    cross join lateral (select j.ctid as tid from convoke_jobs j where j.seq = r.seq offset 0) j
), over as (
    delete from convoke_runs r
    using said s
    where r.ctid = s.tid and r.execution_id = s.execution_id
    returning s.*
), job as (
    update convoke_jobs j
    set state = o.state, due_at = o.due_at, attempt = o.attempt, error = coalesce(o.error, j.error),
        -- Of a schedule's job it stays the tick.
        scheduled_at = case when j.schedule is not null then j.scheduled_at when o.state = 2 then o.due_at end,
        superseded = j.superseded + 1, log_seq = o.log_seq
    from over o
    where j.ctid = o.job and j.id is not distinct from o.id
    returning j.seq, j.due_at, j.queue_id, octet_length(j.args) as args_bytes, j.priority, j.state, j.schedule, j.superseded - 1 as number,
              o.execution_id, o.ran_as, o.ended_as, o.started_at, o.ended_at, o.worker, o.error
), waiting as (
    insert into convoke_waiting (seq, due_at, queue_id, args_bytes, priority, scheduled, schedule)
    select seq, due_at, queue_id, args_bytes, priority, state = 2, schedule from job
)
insert into convoke_executions (job, number, execution_id, attempt, status, started_at, ended_at, worker, error)
select seq, number, execution_id, ran_as, ended_as, started_at, ended_at, worker, error
from job
where convoke_whole((select count(*) from over), (select count(*) from job))
