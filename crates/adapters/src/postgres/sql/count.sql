insert into convoke_counts as c
    (queue_id, slot, pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled)
select n.queue_id, $1::smallint, n.pending, n.scheduled, n.dispatched, n.running, n.completed, n.failed, n.timed_out,
       n.cancelled
from unnest($2::int[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::bigint[], $9::bigint[],
            $10::bigint[])
     as n (queue_id, pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled)
order by n.queue_id
on conflict (queue_id, slot) do update
set pending = c.pending + excluded.pending, scheduled = c.scheduled + excluded.scheduled,
    dispatched = c.dispatched + excluded.dispatched, running = c.running + excluded.running,
    completed = c.completed + excluded.completed, failed = c.failed + excluded.failed,
    timed_out = c.timed_out + excluded.timed_out, cancelled = c.cancelled + excluded.cancelled
