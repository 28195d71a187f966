-- The fast path of completions: writes the result of RunState::apply for runs that are as they were dispatched and report
-- only their end.
with ended as (
    update convoke_jobs j
    set state = {completed}, completed_at = s.at, result = s.result, error = null, run_end = {run_completed},
        execution_id = s.execution_id, attempt = j.attempt + 1, dispatched_at = s.dispatched_at, started_at = s.started_at,
        worker = s.worker, owner = s.by, progress = s.progress, progress_message = s.progress_message
    from (
        -- Each job is looked up by its key and written at its ctid, so that the server has no other plan, whatever its
        -- estimates of the sizes of tables. The fences of a run: its execution, and its owner for reports that came
        -- through its channels.
        select s.*, j.tid, j.pack, f.first, f.dispatched_at, coalesce(s.owner, f.owner) as by
        from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::bigint[],
                    $9::text[], $10::boolean[], $11::boolean[])
             as s (id, execution_id, started_at, worker, owner, progress, progress_message, at, result, if_free, by_channel)
        cross join lateral (
            select j.ctid as tid, j.pack, j.place, j.state from convoke_jobs j where j.id = s.id offset 0
        ) j
        cross join lateral ({flight}) f
        where f.execution_id = s.execution_id and (not s.if_free or f.owner is null or f.owner = s.owner)
        offset 0
    ) s
    -- Compares again what was read: another transaction may have ended the run or moved it to `convoke_runs`.
    where j.ctid = s.tid and j.pack is not distinct from s.pack and j.state < {first_ended}
    returning j.seq, j.id, j.queue_id, j.document, j.attempt, j.due_at, j.started_at, s.at,
              s.by_channel or j.superseded > 0 as unclean, s.pack, s.first
), flights as (
    insert into convoke_flight_ends (pack, first, count) select pack, first, count(*) from ended group by pack, first
), kept as (
    insert into convoke_completed (first_at, seqs) select min(at), array_agg(seq) from ended group by seq >> 9
), unclean as (
    insert into convoke_uncleaned (completed_at, seq, id) select at, seq, id from ended where unclean
), counted as (
    insert into convoke_counts as c (queue_id, slot, dispatched, completed)
    select queue_id, $12::smallint, -count, count
    from (select queue_id, count(*) from ended group by queue_id offset 0) e
    order by queue_id
    on conflict (queue_id, slot) do update
    set dispatched = c.dispatched + excluded.dispatched, completed = c.completed + excluded.completed
)
select id, document, attempt, due_at, started_at from ended
