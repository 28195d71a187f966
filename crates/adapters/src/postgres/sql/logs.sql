select l.seq, l.at, l.level, l.message, l.execution_id
from convoke_jobs j
join convoke_logs l on l.job = j.seq
where j.id = $1 and l.seq > $2
order by l.seq
limit $3
