insert or replace into nodes (id, role, state, job_count, started_at, last_heartbeat_at, version, since)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)
