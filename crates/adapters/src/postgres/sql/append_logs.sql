insert into convoke_logs (job, seq, at, level, execution_id, message)
select * from unnest($1::bigint[], $2::bigint[], $3::bigint[], $4::smallint[], $5::uuid[], $6::text[])
