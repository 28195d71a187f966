update convoke_schedules set next_run_at = $3 where name = $1 and next_run_at = $2 and not paused
