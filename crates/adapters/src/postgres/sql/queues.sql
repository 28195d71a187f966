select q.id, q.name, q.paused, q.rate_limit, q.rate_per, q.concurrency, n.*,
       -- The oldest due time among the jobs that are served next: core::jobs::dispatch::oldest_due.
       (select min(h.due_at)
        from (
            select s.rank + w.priority * {head_start_us} as due_at
            from (
                select w.ranks, w.priority
                from convoke_waiting w
                where w.queue_id = q.id and not w.scheduled
                order by w.rank, w.pack
                limit {heads_read}
            ) w
            cross join lateral unnest(w.ranks) s (rank)
            limit {heads_read}
        ) h) as oldest_pending_at
from convoke_queues q
cross join lateral (
    select coalesce(sum(c.pending), 0)::bigint as pending, coalesce(sum(c.scheduled), 0)::bigint as scheduled,
           coalesce(sum(c.dispatched), 0)::bigint as dispatched, coalesce(sum(c.running), 0)::bigint as running,
           coalesce(sum(c.completed), 0)::bigint as completed, coalesce(sum(c.failed), 0)::bigint as failed,
           coalesce(sum(c.timed_out), 0)::bigint as timed_out, coalesce(sum(c.cancelled), 0)::bigint as cancelled
    from (
        select c.pending, c.scheduled, c.dispatched, c.running, c.completed, c.failed, c.timed_out, c.cancelled
        from convoke_counts c
        where c.queue_id = q.id
        union all
        select d.pending, d.scheduled, 0, 0, 0, 0, 0, 0 from convoke_count_deltas d where d.queue_id = q.id
    ) c
) n
where {which}
  and (not q.deleted or n.pending + n.scheduled + n.dispatched + n.running + n.completed + n.failed + n.timed_out
                        + n.cancelled > 0)
order by q.name
