-- A new group also receives entries that other groups have received and not acknowledged.
with joined as (
    insert into convoke_bus_groups (queue, name) values ($1, $2) on conflict do nothing returning name
),
copies as (
    insert into convoke_bus_entries (queue, id, copy_for, body)
    select distinct on (e.id) e.queue, e.id, $2, e.body
    from convoke_bus_entries e
    where e.queue = $1 and (e.group_name is not null or e.copy_for <> '') and exists (select 1 from joined)
    on conflict do nothing
)
insert into convoke_bus_members (queue, group_name, name, read_at) values ($1, $2, $3, now())
on conflict (queue, group_name, name) do update set read_at = now(), has_left = false
