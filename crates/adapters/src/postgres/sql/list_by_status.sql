select g.seq
from (
    select s.seq from convoke_waiting w cross join unnest(w.seqs) s (seq) where $2::boolean and not w.scheduled and {waiting}
    union all
    select w.seqs[1] from convoke_waiting w where $3::boolean and w.scheduled and ($1::int is null or w.queue_id = $1)
    union all
    select r.seq
    from convoke_runs r
    where (($4::boolean and r.started_at is null) or ($5::boolean and r.started_at is not null))
      and ($1::int is null or r.queue_id = $1)
    union all
    select s.seq
    from convoke_flights f
    cross join unnest(f.seqs) with ordinality s (seq, n)
    where $4::boolean and ($1::int is null or f.queue_id = $1)
      and exists (
          select 1
          from convoke_jobs j
          where j.seq = s.seq and j.pack = f.pack and j.place = f.first + s.n - 1 and j.state < {first_ended}
          offset 0
      )
    union all
    select e.seq from convoke_ended e where e.state = any ($6::smallint[]) and ($1::int is null or e.queue_id = $1)
    union all
    select s.seq
    from convoke_completed c
    cross join unnest(c.seqs) s (seq)
    where {completed} = any ($6::smallint[])
      -- It may have been deleted.
      and exists (select 1 from convoke_jobs j where j.seq = s.seq and ($1::int is null or j.queue_id = $1) offset 0)
) g
where g.seq < $7 and g.seq >= $11::bigint
  and (not $10::boolean
       or exists (
           select 1
           from convoke_jobs j
           where j.seq = g.seq and ($8::int[] is null or j.type_id = any ($8))
             and j.created_at >= $12::bigint and j.created_at < $13::bigint
           -- Not a join, which could read all jobs.
           offset 0
       ))
order by g.seq desc
limit $9
