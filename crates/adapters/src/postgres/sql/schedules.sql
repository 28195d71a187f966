select document, next_run_at, last_run_at from convoke_schedules order by name
