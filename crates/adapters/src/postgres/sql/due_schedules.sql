select document, next_run_at, last_run_at
from convoke_schedules
where next_run_at is not null and not paused
order by next_run_at, name
limit $1
