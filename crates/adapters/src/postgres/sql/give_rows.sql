-- Moves runs that are as they were dispatched to `convoke_runs`.
with {found}, moved as (
    update convoke_jobs j set pack = 0
    from found s
    where j.ctid = s.tid and j.pack is not distinct from s.pack and j.state < {first_ended}
    returning j.id, s.execution_id, j.seq, j.due_at, s.dispatched_at, j.log_seq, j.queue_id, j.attempt + 1 as attempt,
              j.schedule, s.owner
)
insert into convoke_runs (id, execution_id, seq, due_at, dispatched_at, log_seq, queue_id, attempt, schedule, owner, ownership)
select id, execution_id, seq, due_at, dispatched_at, log_seq, queue_id, attempt, schedule, owner,
       case when owner is null then {unowned} else {owned} end
from moved
