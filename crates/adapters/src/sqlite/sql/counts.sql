select coalesce(sum(pending), 0), coalesce(sum(scheduled), 0), coalesce(sum(dispatched), 0), coalesce(sum(running), 0),
       coalesce(sum(completed), 0), coalesce(sum(failed), 0), coalesce(sum(timed_out), 0), coalesce(sum(cancelled), 0)
from queues
where ?1 is null or id = ?1
