select min(due_at)
from (
    select min(due_at) as due_at from jobs where queue_id = ?1 and priority = 0 and state = 1
    union all
    select min(due_at) from jobs where queue_id = ?1 and priority = 1 and state = 1
    union all
    select min(due_at) from jobs where queue_id = ?1 and priority = 2 and state = 1
    union all
    select min(due_at) from jobs where queue_id = ?1 and priority = 3 and state = 1
)
