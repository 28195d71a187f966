select id, role, state, job_count, started_at, last_heartbeat_at, version, since from nodes order by id
