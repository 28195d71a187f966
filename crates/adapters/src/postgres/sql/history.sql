select h.*
from convoke_jobs j
cross join lateral (
    (select e.number, e.execution_id, e.attempt, e.worker, e.status, e.error, e.started_at, e.ended_at
     from convoke_executions e
     where e.job = j.seq and e.number >= $2
     order by e.number
     limit $3)
    union all
    select j.superseded, r.execution_id, r.attempt, r.worker,
           (case when r.started_at is null then {run_dispatched} else {run_running} end)::smallint, null, r.started_at, null
    from convoke_runs r
    where r.id = j.id and j.superseded >= $2
    union all
    select j.superseded, f.execution_id, j.attempt + 1, null, {run_dispatched}::smallint, null, null, null
    from ({flight}) f
    where f.execution_id is not null and j.superseded >= $2
    union all
    select j.superseded, j.execution_id, j.attempt, j.worker, j.run_end, j.error, j.started_at, j.completed_at
    where j.superseded >= $2 and j.state >= {first_ended} and j.execution_id is not null
) h
where j.id = $1
order by h.number
limit $3
