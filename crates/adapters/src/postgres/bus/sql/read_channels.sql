select r.place, r.id, r.body
from (
    select q.place, e.id, e.body,
           sum(octet_length(e.body)) over (order by q.place, e.id) - octet_length(e.body) as before,
           row_number() over (order by q.place, e.id) as number
    from unnest($1::text[], $2::bigint[]) with ordinality as q (name, after, place)
    cross join lateral (
        select e.id, e.body
        from convoke_bus_entries e
        where e.queue = q.name and e.id > q.after and e.copy_for = ''
        order by e.id
        limit $3
    ) e
) r
where r.before < $4 and r.number <= $3
order by r.place, r.id
