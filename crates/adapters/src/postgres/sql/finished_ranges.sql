-- The (state, queue) pairs of jobs that ended without completing: one index descent for each pair.
with recursive ranges (state, queue_id) as (
    select s.state, q.queue_id
    from unnest($1::smallint[]) s (state)
    cross join lateral (
        select e.queue_id
        from convoke_ended e
        where e.state = s.state
        order by e.queue_id
        limit 1
    ) q
    union all
    select r.state, q.queue_id
    from ranges r
    cross join lateral (
        select e.queue_id
        from convoke_ended e
        where e.state = r.state and e.queue_id > r.queue_id
        order by e.queue_id
        limit 1
    ) q
)
select state, queue_id from ranges limit $2
