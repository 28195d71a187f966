with found as (
    select e.ctid, e.id, e.copy_for, octet_length(e.body) as bytes
    from convoke_bus_entries e
    where e.queue = $1 and e.member is null and e.copy_for in ('', $2)
    order by e.id
    limit $4
    for update skip locked
),
chosen as (
    select f.ctid, f.id, sum(f.bytes) over (order by f.id) - f.bytes as before from found f
),
taken as (
    update convoke_bus_entries e
    set group_name = $2, member = $3, taken_at = now(), deliveries = 1
    where e.ctid = any (array(select c.ctid from chosen c where c.before < $5))
    returning e.id, e.copy_for, e.body
),
-- The groups that an entry has yet to reach. A queue has one group, so that this finds none.
copies as (
    insert into convoke_bus_entries (queue, id, copy_for, body)
    select $1, t.id, g.name, t.body
    from taken t, convoke_bus_groups g
    where t.copy_for = '' and g.queue = $1 and g.name <> $2
    on conflict do nothing
),
-- Makes a group and a member again that were forgotten, and otherwise writes a few times a second at most.
joined as (
    insert into convoke_bus_groups (queue, name)
    select $1, $2 where exists (select 1 from taken)
    on conflict do nothing
),
seen as (
    insert into convoke_bus_members (queue, group_name, name, read_at)
    select $1, $2, $3, now() where exists (select 1 from taken)
    on conflict (queue, group_name, name) do update set read_at = now()
    where convoke_bus_members.read_at < now() - interval '200 milliseconds'
)
select t.id, t.body from taken t order by t.id
