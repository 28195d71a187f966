select id, name, paused, concurrency, rate_per,
       pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled, deleted
from queues
order by id
