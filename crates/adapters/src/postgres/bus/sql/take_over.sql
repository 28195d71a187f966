with found as (
    select e.ctid, e.id, octet_length(e.body) as bytes
    from convoke_bus_entries e
    where e.queue = $1 and e.group_name = $2 and e.member <> $3 and e.taken_at <= now() - make_interval(secs => $6)
    order by e.id
    limit $4
    for update skip locked
),
chosen as (
    select f.ctid, sum(f.bytes) over (order by f.id) - f.bytes as before from found f
),
taken as (
    update convoke_bus_entries e
    set member = $3, taken_at = now(), deliveries = e.deliveries + 1
    where e.ctid = any (array(select c.ctid from chosen c where c.before < $5))
    returning e.id, e.body, e.deliveries
)
select t.id, t.body, t.deliveries from taken t order by t.id
