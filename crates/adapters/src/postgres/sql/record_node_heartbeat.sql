insert into convoke_nodes (id, role, state, job_count, started_at, last_heartbeat_at, version, since)
values ($1, $2, $3, $4, $5, $6, $7, $8)
on conflict (id) do update
set role = excluded.role, state = excluded.state, job_count = excluded.job_count, started_at = excluded.started_at,
    last_heartbeat_at = excluded.last_heartbeat_at, version = excluded.version, since = excluded.since
