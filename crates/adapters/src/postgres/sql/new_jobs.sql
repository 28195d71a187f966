array(
    select row(s.id, s.type, s.queue, s.priority, s.document, s.args, s.keys::text[], s.unique_key, s.key_until,
               s.created_at, s.run_at, s.schedule)::convoke_new_job
    from unnest($1::uuid[], $2::smallint[], $3::text[], $4::text[], $5::text[], $6::bigint[], $7::bigint[], $8::text[],
                $9::text[], $10::text[], $11::bigint[], $12::text[])
         with ordinality
         as s (id, priority, document, args, keys, created_at, run_at, type, queue, unique_key, key_until, schedule, ord)
    order by s.ord
)
