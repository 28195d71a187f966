select id, name, paused, concurrency, rate_per,
       pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled
from queues
order by id
