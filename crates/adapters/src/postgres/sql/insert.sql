-- Stores jobs whose ids are new. The caller has divided them into $12 packs.
with packs as materialized (
    select array_agg(nextval('convoke_jobs_pack_seq')) as ids from generate_series(1, $12::int)
), stored as (
    insert into convoke_jobs (id, priority, document, args, keys, created_at, scheduled_at, queue_id, type_id, due_at, state,
                              pack, place)
    select s.id, s.priority, s.document, s.args, s.keys::text[], s.created_at, s.run_at, s.queue_id, s.type_id,
           greatest(s.run_at, s.created_at), case when s.run_at > s.created_at then {scheduled} else {pending} end,
           (select ids from packs)[s.pack], s.place
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::int[],
                $9::int[], $10::int[], $11::smallint[])
         as s (id, priority, document, args, keys, created_at, run_at, queue_id, type_id, pack, place)
    returning seq, due_at, queue_id, priority, state, keys, octet_length(args) as args_bytes, pack, place
), waiting as (
    insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, seqs, ranks, args_bytes)
    select pack, min(due_at), min(rank), min(queue_id), 0, min(priority), bool_and(state = {scheduled}), array_agg(seq),
           array_agg(rank), array_agg(args_bytes)
    from (
        select *, due_at - priority * {head_start_us} as rank
        from stored
        order by pack, place
    ) s
    group by pack
), keyed as (
    insert into convoke_job_keys (key, seq) select unnest(keys), seq from stored where keys is not null
)
insert into convoke_counts as c (queue_id, slot, pending, scheduled)
select queue_id, $13::smallint, count(*) filter (where state = {pending}), count(*) filter (where state = {scheduled})
from stored
group by queue_id
order by queue_id
on conflict (queue_id, slot) do update
set pending = c.pending + excluded.pending, scheduled = c.scheduled + excluded.scheduled
