select l.seq
from (
    select j.seq, j.id, j.state, j.queue_id, j.type_id, j.correlation_id
    from convoke_jobs j
    where {key} and j.seq < $1
    order by j.seq desc
    limit $2
) l
where ($3::int is null or l.queue_id = $3)
  and ($4::int is null or l.type_id = $4)
  and ($5::text is null or l.correlation_id = $5)
  and ($6::smallint[] is null
       or coalesce((select case when r.started_at is null then 3 else 4 end
                    from convoke_runs r
                    where l.state < 5 and r.id = l.id), l.state) = any ($6))
order by l.seq desc
limit $7
