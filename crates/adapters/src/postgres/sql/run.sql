select r.id, r.execution_id, r.attempt, r.started_at, r.worker, r.owner, r.ownership, r.dispatched_at, r.deadline, j.document
from convoke_runs r
cross join lateral (select j.document from convoke_jobs j where j.seq = r.seq offset 0) j
