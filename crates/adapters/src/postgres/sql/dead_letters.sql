select seq, log_seq, superseded
from convoke_jobs
where id = any ($1::uuid[]) and state in (6, 7)
order by id
limit $2
for update
