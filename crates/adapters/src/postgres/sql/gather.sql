select g.seq
from (
    select w.seq from convoke_waiting w where $3::boolean and not w.scheduled and {waiting}
    union all
    select w.seq from convoke_waiting w where $4::boolean and w.scheduled and ($2::int is null or w.queue_id = $2)
    union all
    select r.seq
    from convoke_runs r
    where (($5::boolean and r.started_at is null) or ($6::boolean and r.started_at is not null)) and ($2::int is null or r.queue_id = $2)
) g
where g.seq < $1
  and ($7::int is null or exists (select 1 from convoke_jobs j where j.seq = g.seq and j.type_id = $7))
order by g.seq desc
limit $8
