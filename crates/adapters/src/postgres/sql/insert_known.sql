-- As insert.sql, where some are known by their ids: answers those that are new.
with stored as (
    insert into convoke_jobs (id, queue_id, type_id, state, priority, due_at, created_at, scheduled_at, max_retries,
                              timeout, retry_initial, retry_multiplier, retry_max, retry_jitter, correlation_id, args)
    select *
    from unnest($1::uuid[], $2::int[], $3::int[], $4::smallint[], $5::smallint[], $6::bigint[], $7::bigint[], $8::bigint[],
                $9::int[], $10::bigint[], $11::bigint[], $12::float8[], $13::bigint[], $14::smallint[], $15::text[],
                $16::text[])
    on conflict do nothing
    returning seq, id, due_at, queue_id, priority, state, octet_length(args) as args_bytes
), waiting as (
    insert into convoke_waiting (seq, due_at, queue_id, args_bytes, priority, scheduled)
    select seq, due_at, queue_id, args_bytes, priority, state = 2 from stored
), counted as (
    insert into convoke_counts as c (queue_id, slot, pending, scheduled)
    select queue_id, $17::smallint, count(*) filter (where state = 1), count(*) filter (where state = 2)
    from stored
    group by queue_id
    order by queue_id
    on conflict (queue_id, slot) do update
    set pending = c.pending + excluded.pending, scheduled = c.scheduled + excluded.scheduled
)
select id from stored
