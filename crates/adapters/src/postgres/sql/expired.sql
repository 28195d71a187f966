select e.seq, j.log_seq, j.superseded, null::bigint as batch
from (
    select e.seq, e.completed_at
    from convoke_ended e
    where e.state = $1 and e.completed_at < $2
      and not exists (select 1 from convoke_uncleaned u where u.completed_at = e.completed_at and u.seq = e.seq)
    order by e.completed_at, e.seq
    limit $3
) e
cross join lateral (select j.log_seq, j.superseded from convoke_jobs j where j.seq = e.seq offset 0) j
order by e.completed_at, e.seq
