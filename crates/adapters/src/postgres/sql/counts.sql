select coalesce(sum(pending), 0)::bigint, coalesce(sum(scheduled), 0)::bigint, coalesce(sum(dispatched), 0)::bigint,
       coalesce(sum(running), 0)::bigint
from (
    select queue_id, pending, scheduled, dispatched, running from convoke_counts
    union all
    select queue_id, pending, scheduled, 0, 0 from convoke_count_deltas
) c
where $1::int is null or queue_id = $1
