with pushed as (
    insert into convoke_bus_entries (queue, body)
    select e.queue, e.body
    from unnest($3::text[], $4::bytea[]) with ordinality as e (queue, body, place)
    order by e.place
)
select pg_notify($1, n.payload) from unnest($2::text[]) as n (payload)
