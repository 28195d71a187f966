select id, name, paused, concurrency,
       pending, scheduled, dispatched, running, completed, failed, timed_out, cancelled, deleted
from queues
order by id
