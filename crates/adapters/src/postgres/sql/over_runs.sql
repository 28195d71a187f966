select s.ord, coalesce(j.run_end, case j.state when 5 then 2 when 6 then 3 when 7 then 4 else 5 end)::smallint, j.error,
       j.result
from unnest($1::uuid[], $2::uuid[]) with ordinality s (id, execution_id, ord)
join convoke_jobs j on j.id = s.id and j.execution_id = s.execution_id and j.state >= 5
union all
-- What completed is not run again: no run in the history has a result.
select s.ord, e.status, e.error, null
from unnest($1::uuid[], $2::uuid[]) with ordinality s (id, execution_id, ord)
join convoke_jobs j on j.id = s.id
join convoke_executions e on e.job = j.seq and e.execution_id = s.execution_id
