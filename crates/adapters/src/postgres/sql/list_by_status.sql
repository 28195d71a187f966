select g.seq
from (
    select w.seq from convoke_waiting w where $2::boolean and not w.scheduled and {waiting}
    union all
    select w.seq from convoke_waiting w where $3::boolean and w.scheduled and ($1::int is null or w.queue_id = $1)
    union all
    select r.seq
    from convoke_runs r
    where (($4::boolean and r.started_at is null) or ($5::boolean and r.started_at is not null))
      and ($1::int is null or r.queue_id = $1)
    union all
    select e.seq from convoke_ended e where e.state = any ($6::smallint[]) and ($1::int is null or e.queue_id = $1)
) g
where g.seq < $7
  and ($8::int is null or exists (select 1 from convoke_jobs j where j.seq = g.seq and j.type_id = $8))
order by g.seq desc
limit $9
