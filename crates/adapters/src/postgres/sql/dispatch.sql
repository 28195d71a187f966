with f as materialized (
    select 1 from convoke_cluster where id = 1 and sealed = $1 for share
), windows as materialized (
    select w.ord, w.queue_id, w.metered, w.floor_0, w.floor_1, w.floor_2, w.floor_3, n.pending,
           case when q.paused then 0
                when q.concurrency is null then w.most
                else least(w.most, greatest(q.concurrency - n.in_flight, 0)) end as room
    from unnest($2::int[], $3::bigint[], $4::bigint[], $8::bigint[], $9::bigint[], $10::bigint[], $11::bigint[])
         with ordinality w (queue_id, most, metered, floor_0, floor_1, floor_2, floor_3, ord)
    cross join lateral (select * from convoke_queues q where q.id = w.queue_id offset 0) q
    cross join lateral (
        select coalesce(sum(c.pending), 0)::bigint as pending, coalesce(sum(c.in_flight), 0)::bigint as in_flight
        from (
            select c.pending, c.dispatched + c.running as in_flight from convoke_counts c where c.queue_id = w.queue_id
            union all
            select d.pending, 0 from convoke_count_deltas d where d.queue_id = w.queue_id
        ) c
    ) n
    where exists (select 1 from f)
), ranked as materialized (
    select h.tid, w.ord,
           sum(h.args_bytes) over (order by w.ord, h.rank, h.seq) as bytes,
           row_number() over (order by w.ord, h.rank, h.seq) as place
    from windows w
    cross join lateral (
        -- Each priority is a range of its own, in the order in which it is to be served.
        select p.tid, p.rank, p.seq, p.args_bytes
        from (
            (select ctid as tid, seq, due_at as rank, args_bytes
             from convoke_waiting
             where queue_id = w.queue_id and priority = 0 and due_at >= w.floor_0 and not scheduled
             order by due_at, seq limit w.room)
            union all
            (select ctid, seq, due_at - 60000000, args_bytes
             from convoke_waiting
             where queue_id = w.queue_id and priority = 1 and due_at >= w.floor_1 and not scheduled
             order by due_at, seq limit w.room)
            union all
            (select ctid, seq, due_at - 120000000, args_bytes
             from convoke_waiting
             where queue_id = w.queue_id and priority = 2 and due_at >= w.floor_2 and not scheduled
             order by due_at, seq limit w.room)
            union all
            (select ctid, seq, due_at - 180000000, args_bytes
             from convoke_waiting
             where queue_id = w.queue_id and priority = 3 and due_at >= w.floor_3 and not scheduled
             order by due_at, seq limit w.room)
        ) p
        order by p.rank, p.seq
        limit w.room
    ) h
    order by w.ord, h.rank, h.seq
    limit cardinality($5::uuid[])
), chosen as materialized (
    -- As many as fit the bytes, but at least one.
    select tid, ord, bytes <= $12::bigint or place = 1 as fits from ranked
), cut as materialized (
    select distinct ord from chosen where not fits
), gone as (
    -- Nothing beside the place of the row in the `where`: with more, it is looked for.
    delete from convoke_waiting where ctid = any (array(select tid from chosen where fits))
    returning seq
), taken as materialized (
    select j.*, ($5::uuid[])[g.n] as execution
    from (select seq, row_number() over () as n from gone) g
    cross join lateral (
        select j.seq, j.id, j.due_at, j.queue_id, j.type_id, j.priority, j.attempt + 1 as attempt, j.max_retries, j.timeout,
               j.log_seq, j.schedule, j.correlation_id, j.args
        from convoke_jobs j
        where j.seq = g.seq
        offset 0
    ) j
), flown as (
    insert into convoke_runs (id, execution_id, seq, due_at, dispatched_at, timeout, log_seq, queue_id, type_id, attempt,
                              schedule)
    select id, execution, seq, due_at, $6::bigint, timeout, log_seq, queue_id, type_id, attempt, schedule from taken
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
select w.ord, w.pending, t.id, t.execution, t.type_id, t.priority, t.due_at, t.seq, t.attempt, t.max_retries, t.timeout,
       t.correlation_id, t.args, k.ord is not null
from windows w
left join taken t on t.queue_id = w.queue_id
left join cut k on k.ord = w.ord
