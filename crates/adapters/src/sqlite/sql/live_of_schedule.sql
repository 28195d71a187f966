select 1
from jobs indexed by jobs_live_of_schedule
where schedule = ?1 and schedule is not null and state < {first_ended}
limit 1
