select j.id, j.document, j.args, j.attempt_base, j.result, j.error, j.schedule, j.created_at, j.scheduled_at, j.completed_at,
       (case when r.started_at is not null then {running}
             when coalesce(r.id, f.execution_id) is not null then {dispatched}
             else j.state end)::smallint as state,
       coalesce(r.attempt, j.attempt + (f.execution_id is not null)::int) as attempt,
       coalesce(r.execution_id, f.execution_id, j.execution_id) as execution_id,
       coalesce(r.ownership, case when f.owner is not null then {owned} else {unowned} end)::smallint as ownership,
       coalesce(r.owner, f.owner, j.owner) as owner,
       coalesce(r.worker, j.worker) as worker, coalesce(r.progress, j.progress) as progress,
       coalesce(r.progress_message, j.progress_message) as progress_message,
       coalesce(r.dispatched_at, f.dispatched_at, j.dispatched_at) as dispatched_at,
       coalesce(r.started_at, j.started_at) as started_at,
       j.state >= {first_ended} and not exists (
           select 1 from convoke_uncleaned u where u.completed_at = j.completed_at and u.seq = j.seq
       ) as channels_cleaned
from convoke_jobs j
left join convoke_runs r on r.id = j.id
left join lateral ({flight}) f on f.execution_id is not null
