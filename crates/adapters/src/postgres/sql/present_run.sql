select r.execution_id, r.attempt, r.worker, (case when r.started_at is null then 0 else 1 end)::smallint, null::text,
       r.started_at, null::bigint
from convoke_runs r
join convoke_jobs j on j.id = r.id
where r.id = $1 and j.superseded >= $2
union all
select j.execution_id, j.attempt, j.worker,
       coalesce(j.run_end, case j.state when 5 then 2 when 6 then 3 when 7 then 4 else 5 end)::smallint, j.error,
       j.started_at, j.completed_at
from convoke_jobs j
where j.id = $1 and j.superseded >= $2 and j.state >= 5 and j.execution_id is not null
