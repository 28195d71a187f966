insert or replace into workers
    (id, name, queues, concurrency, running, state, registered_at, last_heartbeat_at, via)
values (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)
