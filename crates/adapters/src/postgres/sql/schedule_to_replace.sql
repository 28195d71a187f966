select document, next_run_at, last_run_at from convoke_schedules where name = $1 for update
