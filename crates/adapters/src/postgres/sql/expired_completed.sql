-- A row of completed jobs whose jobs were all deleted by hand is returned by the numbers that it lists: it is deleted.
select s.seq, coalesce(j.log_seq, 0) as log_seq, coalesce(j.superseded, 0) as superseded, c.id as batch
from (select c.id, c.seqs from convoke_completed c where c.first_at < $1 order by c.first_at limit $2) c
cross join lateral unnest(c.seqs) s (seq)
left join lateral (
    select j.seq, j.completed_at, j.log_seq, j.superseded from convoke_jobs j where j.seq = s.seq offset 0
) j on true
where (j.seq is null or j.completed_at < $1)
  and not exists (select 1 from convoke_uncleaned u where u.completed_at = j.completed_at and u.seq = j.seq)
limit $2
