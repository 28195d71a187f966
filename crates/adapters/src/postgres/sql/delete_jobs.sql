with gone as (
    delete from convoke_jobs j
    where j.seq = any ($1::bigint[]) and j.state >= {first_ended} and j.completed_at < $2
    returning j.seq, j.id, j.queue_id, j.state, j.completed_at, j.unique_key, j.keys, j.superseded, j.log_seq
), ended as (
    delete from convoke_ended e
    using gone g
    where e.state = g.state and e.completed_at = g.completed_at and e.seq = g.seq
), batches as (
    delete from convoke_completed c where c.id = any ($3::bigint[]) returning c.first_at, c.seqs
), kept as (
    insert into convoke_completed (first_at, seqs)
    select b.first_at, l.seqs
    from batches b
    cross join lateral (
        select array_agg(s.seq) as seqs
        from unnest(b.seqs) s (seq)
        where not exists (select 1 from gone g where g.seq = s.seq)
          and exists (select 1 from convoke_jobs j where j.seq = s.seq)
    ) l
    where l.seqs is not null
), cleaned as (
    delete from convoke_uncleaned u using gone g where u.completed_at = g.completed_at and u.seq = g.seq
), history as (
    delete from convoke_executions e using gone g where g.superseded > 0 and e.job = g.seq
), logs as (
    delete from convoke_logs l using gone g where g.log_seq > 0 and l.job = g.seq
), found as (
    -- Written so that the server must use the keys of the job, whatever its estimate of the size of the table.
    delete from convoke_job_keys
    where ctid = any (array(
        select k.tid
        from gone g
        cross join lateral unnest(g.keys) of_job (key)
        cross join lateral (
            select k.ctid as tid from convoke_job_keys k where k.key = of_job.key and k.seq = g.seq offset 0
        ) k
        where g.keys is not null
    ))
), keys as (
    -- A key that outlives its job stays.
    delete from convoke_unique_keys k
    using gone g
    where g.unique_key is not null and k.key = g.unique_key and k.job_id = g.id and k.until is null
)
select queue_id, state, count(*) from gone group by queue_id, state
