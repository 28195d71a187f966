select seq, log_seq, superseded, null::bigint as batch
from convoke_jobs
where id = any ($1::uuid[]) and state >= {first_ended} and state = any ($3::smallint[])
order by id
limit $2
for update
