select queue_id, sum(failed)::bigint, sum(timed_out)::bigint, sum(cancelled)::bigint
from convoke_counts
where $1::int is null or queue_id = $1
group by queue_id
