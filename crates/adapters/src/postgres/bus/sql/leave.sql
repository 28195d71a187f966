with freed as (
    update convoke_bus_entries set taken_at = '-infinity'
    where queue = $1 and group_name = $2 and member = $3
    returning id
),
kept as (
    update convoke_bus_members set has_left = true
    where queue = $1 and group_name = $2 and name = $3 and exists (select 1 from freed)
)
delete from convoke_bus_members
where queue = $1 and group_name = $2 and name = $3 and not exists (select 1 from freed)
