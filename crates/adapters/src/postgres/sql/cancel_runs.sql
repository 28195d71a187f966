delete from convoke_runs where id = any ($1::uuid[])
returning id, seq, execution_id, attempt, dispatched_at, started_at, worker, owner, progress, progress_message, log_seq
