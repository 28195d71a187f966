insert into convoke_schedules (name, next_run_at, last_run_at, paused, document) values ($1, $2, $3, $4, $5)
on conflict (name) do update
set next_run_at = excluded.next_run_at, last_run_at = excluded.last_run_at, paused = excluded.paused,
    document = excluded.document
-- xmax is 0 in a row that was inserted, not updated.
returning xmax = 0 as is_new
