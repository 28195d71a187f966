select a.ord, e.seq,
       ($5::int is null or exists (select 1 from convoke_jobs j where j.seq = e.seq and j.type_id = $5)) as matches
from unnest($1::smallint[], $2::int[]) with ordinality a (state, queue_id, ord)
cross join lateral (
    select e.seq
    from convoke_ended e
    where e.state = a.state and e.state <> {completed} and e.queue_id = a.queue_id and e.seq < $3
    order by e.seq desc
    limit $4
) e
