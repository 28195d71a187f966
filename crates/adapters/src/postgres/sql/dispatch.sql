with f as materialized (
    select 1 from convoke_cluster where id = 1 and sealed = $1 for share
), windows as materialized (
    -- The fast path of core::jobs::dispatch::Choice, with which the conformance suite compares it. The room of a queue is
    -- as `Room::within` returns it.
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
), bounds as materialized (
    -- As many jobs as there is room for, of the first rows: none of those to take ranks behind the last of them.
    select w.ord, w.queue_id, w.room, w.floor, h.last
    from windows w
    cross join lateral (
        select max(h.rank) as last
        from (
            select u.rank
            from (
                select ranks
                from convoke_waiting
                where queue_id = w.queue_id and rank >= w.floor and not scheduled
                order by rank, pack
                limit w.room
            ) p
            cross join lateral unnest(p.ranks) u (rank)
            limit w.room
        ) h
    ) h
), ranked as materialized (
    -- As many as fit the bytes, but at least one.
    select r.*, r.bytes <= $9::bigint or r.n = 1 as fits
    from (
        select h.tid, h.pack, h.part, h.place, h.seq, h.rank, w.ord, w.queue_id,
               sum(h.bytes) over (order by w.ord, h.rank, h.seq) as bytes,
               row_number() over (order by w.ord, h.rank, h.seq) as n
        from bounds w
        cross join lateral (
            select p.tid, p.pack, p.first as part, p.first + u.n - 1 as place, u.seq, u.rank, u.bytes
            from (
-- Rows that another transaction is changing are left to the next dispatch.
                select ctid as tid, pack, first, seqs, ranks, args_bytes
                from convoke_waiting
                where queue_id = w.queue_id and rank >= w.floor and rank <= w.last and not scheduled
                for update skip locked
            ) p
            cross join lateral unnest(p.seqs, p.ranks, p.args_bytes) with ordinality u (seq, rank, bytes, n)
            where u.rank <= w.last
            order by u.rank, u.seq
            limit w.room
        ) h
        order by w.ord, h.rank, h.seq
        limit cardinality($5::uuid[])
    ) r
), cut as materialized (
    select distinct ord from ranked where not fits
), gone as (
    -- The jobs of a row are in the order of dispatch: its first ones are taken.
    delete from convoke_waiting w
    using (select tid, max(place) as last from ranked where fits group by tid) p
    where w.ctid = p.tid
    returning w.*, p.last - w.first + 2 as next
), rest as (
    insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, schedule, seqs, ranks, args_bytes)
    select pack, ranks[next] + priority * {head_start_us}, ranks[next], queue_id, first + next - 1, priority, scheduled,
           schedule, seqs[next :], ranks[next :], args_bytes[next :]
    from gone
    where next <= cardinality(seqs)
), taken as materialized (
    select j.*, r.ord, r.queue_id, r.pack, r.part, r.place, r.rank, ($5::uuid[])[r.n] as execution,
           -- The number of the owner. The array has the end of each owner's share, in the order of windows.
           width_bucket((r.ord << 32) + r.of_window - 1, $10::bigint[]) + 1 as share
    from (select *, row_number() over (partition by ord order by n) as of_window from ranked where fits) r
    cross join lateral (
        select j.seq, j.id, j.attempt + 1 as attempt, j.schedule, j.document, j.args
        from convoke_jobs j
        where j.seq = r.seq
        offset 0
    ) j
), flown as (
    insert into convoke_flights (pack, dispatched_at, queue_id, first, owner, schedule, seqs, executions)
    select pack, $6::bigint, min(queue_id), min(place), ($11::text[])[share], min(schedule), array_agg(seq),
           array_agg(execution)
    -- Of one row and share, so that their places have no gap.
    from (
        select pack, part, share, place, queue_id, schedule, seq, execution from taken order by pack, part, share, place
    ) t
    group by pack, part, share
), served as materialized (
    select ord, queue_id, count(*) from ranked where fits group by ord, queue_id
), counted as (
    insert into convoke_counts as c (queue_id, slot, pending, dispatched)
    select queue_id, $7::smallint, -count, count from served order by queue_id
    on conflict (queue_id, slot) do update
    set pending = c.pending + excluded.pending, dispatched = c.dispatched + excluded.dispatched
), granted as (
    insert into convoke_grants (queue_id, at, count)
    select w.queue_id, $6::bigint, s.count
    from windows w
    join served s on s.ord = w.ord
    where w.metered is not null
), forgotten as (
    delete from convoke_grants g
    using windows w
    where w.metered is not null and g.queue_id = w.queue_id and g.at < $6::bigint - w.metered
)
-- The windows, without a job. At least one row, unless the fence is rejected.
select w.ord, w.pending, exists (select 1 from cut c where c.ord = w.ord) as is_cut, null::uuid as id,
       null::uuid as execution, null::bigint as rank, null::bigint as seq, null::int as attempt, null as document, null as args
from f
left join windows w on true
union all
select ord, null, null, id, execution, rank, seq, attempt, document, args from taken
