select id, name, queues, concurrency, running, state, registered_at, last_heartbeat_at, via
from convoke_workers
order by id
