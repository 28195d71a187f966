-- The runs of an owner, of dispatches before a time, of these executions, or all. Then nothing refers to their rows.
flights as materialized (
    select f.ctid as tid, f.*
    from convoke_flights f
    where ($1::text is null or f.owner = $1) and ($2::bigint is null or f.dispatched_at < $2)
      and (cardinality($3::uuid[]) = 0 or f.executions && $3)
    order by f.pack, f.first
), found as materialized (
    select j.tid, j.id, j.pack, u.execution_id, f.dispatched_at, f.owner
    from flights f
    cross join lateral unnest(f.seqs, f.executions) with ordinality u (seq, execution_id, n)
    cross join lateral (
        select j.ctid as tid, j.id, j.pack, j.place, j.state from convoke_jobs j where j.seq = u.seq offset 0
    ) j
    where j.pack = f.pack and j.place = f.first + u.n - 1 and j.state < {first_ended}
    order by j.id
), over as (
    delete from convoke_flights where ctid = any (array(select tid from flights))
)
