select id, name, paused, rate_limit, rate_per, concurrency,
       pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled
from queues
where name = ?1 and not deleted
