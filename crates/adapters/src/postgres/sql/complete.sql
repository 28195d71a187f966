with said as materialized (
    -- Each run is looked up by its key, and written where it was found: whatever the server thinks of the sizes of tables,
    -- it has no other way.
    select s.*, r.tid, r.seq, j.tid as job
    from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::text[], $7::boolean[], $8::bigint[],
                $9::smallint[], $10::text[], $11::boolean[])
         as s (id, execution_id, at, result, worker, owner, if_free, started_at, progress, progress_message, by_channel)
    cross join lateral (select r.ctid as tid, r.seq from convoke_runs r where r.id = s.id offset 0) r
    cross join lateral (select j.ctid as tid from convoke_jobs j where j.seq = r.seq offset 0) j
), over as (
    -- The fences of a run: its execution, and its owner for those who came by its channels.
    delete from convoke_runs r
    using said s
    where r.ctid = s.tid and r.execution_id = s.execution_id
      and (not s.if_free or r.owner is null or r.owner = s.owner)
    returning s.job, r.id, r.execution_id, r.queue_id, r.type_id, r.attempt, r.due_at, r.dispatched_at, r.log_seq, s.at,
              s.result, r.started_at is not null as ran,
              coalesce(r.started_at, s.started_at) as started_at,
              coalesce(s.worker, r.worker) as worker,
              coalesce(s.owner, r.owner) as owner,
              coalesce(s.progress, r.progress) as progress,
              case when s.progress is null then r.progress_message else s.progress_message end as progress_message,
              r.by_channel or s.by_channel as by_channel
), ended as (
    update convoke_jobs j
    set state = 5, completed_at = o.at, result = o.result, error = null, execution_id = o.execution_id,
        attempt = o.attempt, dispatched_at = o.dispatched_at, started_at = o.started_at, worker = o.worker, owner = o.owner,
        progress = o.progress, progress_message = o.progress_message, log_seq = o.log_seq
    from over o
    where j.ctid = o.job and j.id is not distinct from o.id
    returning j.seq, j.id, j.queue_id, o.type_id, o.attempt, o.due_at, o.started_at, o.at, o.ran,
              o.by_channel or j.superseded > 0 as unclean
), kept as (
    insert into convoke_ended (seq, completed_at, queue_id, state) select seq, at, queue_id, 5
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
select id, queue_id, type_id, attempt, due_at, started_at from ended
