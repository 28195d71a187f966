insert into convoke_workers (id, name, queues, concurrency, running, state, registered_at, last_heartbeat_at, via)
select *
from unnest($1::text[], $2::text[], $3::text[], $4::bigint[], $5::bigint[], $6::smallint[], $7::bigint[], $8::bigint[],
            $9::text[]) as w (id, name, queues, concurrency, running, state, registered_at, last_heartbeat_at, via)
order by w.id
on conflict (id) do update
set name = excluded.name, queues = excluded.queues, concurrency = excluded.concurrency, running = excluded.running,
    state = excluded.state, registered_at = excluded.registered_at, last_heartbeat_at = excluded.last_heartbeat_at,
    via = excluded.via
