select seq, log_seq, superseded
from convoke_jobs
where id = any ($1::uuid[]) and state in ({dead_letter})
order by id
limit $2
for update
