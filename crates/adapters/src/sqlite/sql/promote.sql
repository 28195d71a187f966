update jobs
set state = {pending}
where seq in (
    select seq from jobs indexed by jobs_scheduled where state = {scheduled} and due_at <= ?1 order by due_at, seq limit ?2
)
returning queue_id
