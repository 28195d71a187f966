with gone as (
    delete from convoke_jobs j
    where j.seq = any ($1::bigint[]) and j.state >= 5 and j.completed_at < $2
    returning j.seq, j.id, j.queue_id, j.state, j.completed_at, j.unique_key, j.superseded, j.log_seq
), ended as (
    delete from convoke_ended e
    using gone g
    where e.state = g.state and e.completed_at = g.completed_at and e.seq = g.seq
), cleaned as (
    delete from convoke_uncleaned u using gone g where u.completed_at = g.completed_at and u.seq = g.seq
), history as (
    delete from convoke_executions e using gone g where g.superseded > 0 and e.job = g.seq
), logs as (
    delete from convoke_logs l using gone g where g.log_seq > 0 and l.job = g.seq
), keys as (
    -- A key that outlives its job stays.
    delete from convoke_unique_keys k
    using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.until is null
)
select queue_id, state, count(*) from gone group by queue_id, state
