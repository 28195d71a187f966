select name, document, next_run_at, last_run_at
from schedules indexed by schedules_due
where next_run_at is not null and paused = 0
order by next_run_at, name
limit ?1
