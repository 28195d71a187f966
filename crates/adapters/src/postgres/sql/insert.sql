-- Returns the ids of the new jobs, if the statement is for jobs of which some may be stored already.
with stored as (
    insert into convoke_jobs (id, priority, document, args, keys, created_at, scheduled_at, queue_id, type_id, due_at, state)
    select s.id, s.priority, s.document, s.args, s.keys::text[], s.created_at, s.run_at, s.queue_id, s.type_id,
           greatest(s.run_at, s.created_at), case when s.run_at > s.created_at then {scheduled} else {pending} end
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::int[],
                $9::int[])
         as s (id, priority, document, args, keys, created_at, run_at, queue_id, type_id)
    {on_conflict}
    returning seq, id, due_at, queue_id, priority, state, keys, octet_length(args) as args_bytes
), waiting as (
    insert into convoke_waiting (seq, due_at, queue_id, args_bytes, rank, scheduled)
    select seq, due_at, queue_id, args_bytes, due_at - priority * {head_start_us}, state = {scheduled} from stored
), keyed as (
    insert into convoke_job_keys (key, seq) select unnest(keys), seq from stored where keys is not null
), counted as (
    insert into convoke_counts as c (queue_id, slot, pending, scheduled)
    select queue_id, $10::smallint, count(*) filter (where state = {pending}), count(*) filter (where state = {scheduled})
    from stored
    group by queue_id
    order by queue_id
    on conflict (queue_id, slot) do update
    set pending = c.pending + excluded.pending, scheduled = c.scheduled + excluded.scheduled
)
select id from stored where {known}
