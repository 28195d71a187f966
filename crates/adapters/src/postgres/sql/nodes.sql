select id, role, state, job_count, started_at, last_heartbeat_at, version, since from convoke_nodes order by id
