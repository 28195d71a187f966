select s.ord, o.status, o.error, o.result
from unnest($1::uuid[], $2::uuid[]) with ordinality s (id, execution_id, ord)
cross join lateral (
    select j.seq, j.execution_id, j.state, j.run_end, j.error, j.result from convoke_jobs j where j.id = s.id offset 0
) j
cross join lateral (
    select j.run_end as status, j.error, j.result
    where j.state >= {first_ended} and j.execution_id = s.execution_id
    union all
    -- A completed job does not run again: no run in the history has a result.
    select e.status, e.error, null
    from convoke_executions e
    where e.job = j.seq and e.execution_id = s.execution_id
) o
