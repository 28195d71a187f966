update convoke_runs r
set worker = s.worker, owner = s.owner, ownership = s.ownership, started_at = s.started_at, deadline = s.deadline,
    progress = s.progress, progress_message = s.progress_message, by_channel = s.by_channel, log_seq = s.log_seq,
    run_log_next = s.run_log_next, run_log_kept = s.run_log_kept
from (
    select s.*, r.tid
    from unnest($1::uuid[], $2::uuid[], $3::bigint[], $4::text[], $5::text[], $6::smallint[], $7::text[], $8::bigint[],
                $9::smallint[], $10::bigint[], $11::boolean[], $12::bigint[], $13::bigint[])
         as s (id, execution_id, started_at, worker, owner, progress, progress_message, log_seq, ownership, deadline,
               by_channel, run_log_next, run_log_kept)
    cross join lateral (select r.ctid as tid from convoke_runs r where r.id = s.id offset 0) r
) s
where r.ctid = s.tid and r.execution_id = s.execution_id
