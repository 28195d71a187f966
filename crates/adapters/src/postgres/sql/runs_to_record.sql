select r.id, r.execution_id, r.seq, r.queue_id, r.attempt, r.due_at, r.started_at, r.deadline, r.worker, r.owner,
       r.ownership, r.progress, r.progress_message, r.by_channel, r.log_seq, r.run_log_next, r.run_log_kept,
       j.attempt_base, j.document, j.superseded > 0 as has_history
from convoke_runs r
cross join lateral (select * from convoke_jobs j where j.seq = r.seq offset 0) j
where r.id = any ($1::uuid[])
order by r.id
for update of r
