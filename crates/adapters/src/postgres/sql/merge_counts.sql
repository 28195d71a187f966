with gone as (
    delete from convoke_count_deltas
    where ctid = any (array(select ctid from convoke_count_deltas limit $2))
    returning queue_id, pending, scheduled
)
insert into convoke_counts as c (queue_id, slot, pending, scheduled)
select queue_id, $1::smallint, sum(pending), sum(scheduled)
from gone
group by queue_id
order by queue_id
on conflict (queue_id, slot) do update
set pending = c.pending + excluded.pending, scheduled = c.scheduled + excluded.scheduled
