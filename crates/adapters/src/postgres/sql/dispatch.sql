with f as materialized (
    select 1 from convoke_cluster where id = 1 and sealed = $1 for share
), windows as materialized (
    -- The fast path of core::jobs::dispatch: the room of a queue is as `Room::within` returns it.
    select w.ord, q.id as queue_id, w.metered, w.floor, n.pending,
           case when q.paused then 0
                when q.concurrency is null then w.most
                else least(w.most, greatest(q.concurrency - n.in_flight, 0)) end as room
    from unnest($2::text[], $3::bigint[], $4::bigint[], $8::bigint[])
         with ordinality w (queue, most, metered, floor, ord)
    cross join lateral (select * from convoke_queues q where q.name = w.queue offset 0) q
    cross join lateral (
        select coalesce(sum(c.pending), 0)::bigint as pending, coalesce(sum(c.in_flight), 0)::bigint as in_flight
        from (
            select c.pending, c.dispatched + c.running as in_flight from convoke_counts c where c.queue_id = q.id
            union all
            select d.pending, 0 from convoke_count_deltas d where d.queue_id = q.id
        ) c
    ) n
    where exists (select 1 from f)
), ranked as materialized (
    select h.tid, w.ord,
           sum(h.args_bytes) over (order by w.ord, h.rank, h.seq) as bytes,
           row_number() over (order by w.ord, h.rank, h.seq) as place
    from windows w
    cross join lateral (
        select ctid as tid, rank, seq, args_bytes
        from convoke_waiting
        where queue_id = w.queue_id and rank >= w.floor and not scheduled
        order by rank, seq
        limit w.room
    ) h
    order by w.ord, h.rank, h.seq
    limit cardinality($5::uuid[])
), chosen as materialized (
    -- As many as fit the bytes, but at least one.
    select tid, ord, bytes <= $9::bigint or place = 1 as fits from ranked
), cut as materialized (
    select distinct ord from chosen where not fits
), gone as (
    -- Only the ctid in the `where`: with more conditions, the server would search for the row.
    delete from convoke_waiting where ctid = any (array(select tid from chosen where fits))
    returning seq, rank
), taken as materialized (
    select j.*, g.rank, ($5::uuid[])[g.n] as execution
    from (select seq, rank, row_number() over () as n from gone) g
    cross join lateral (
        select j.seq, j.id, j.due_at, j.queue_id, j.attempt + 1 as attempt, j.log_seq, j.schedule, j.document, j.args
        from convoke_jobs j
        where j.seq = g.seq
        offset 0
    ) j
), flown as (
    insert into convoke_runs (id, execution_id, seq, due_at, dispatched_at, log_seq, queue_id, attempt, schedule)
    select id, execution, seq, due_at, $6::bigint, log_seq, queue_id, attempt, schedule from taken
), counted as (
    insert into convoke_counts as c (queue_id, slot, pending, dispatched)
    select queue_id, $7::smallint, -count(*), count(*)
    from taken
    group by queue_id
    order by queue_id
    on conflict (queue_id, slot) do update
    set pending = c.pending + excluded.pending, dispatched = c.dispatched + excluded.dispatched
), granted as (
    insert into convoke_grants (queue_id, at, count)
    select w.queue_id, $6::bigint, count(*)
    from windows w
    join taken t on t.queue_id = w.queue_id
    where w.metered is not null
    group by w.queue_id
), forgotten as (
    delete from convoke_grants g
    using windows w
    where w.metered is not null and g.queue_id = w.queue_id and g.at < $6::bigint - w.metered
)
-- At least one row, unless the fence is rejected.
select w.ord, w.pending, k.ord is not null as is_cut, t.id, t.execution, t.rank, t.seq, t.attempt, t.document, t.args
from f
left join windows w on true
left join taken t on t.queue_id = w.queue_id
left join cut k on k.ord = w.ord
