with trimmed as (
    update convoke_jobs j
    set log_seq = j.log_seq - $2
    where j.seq = $1 and j.log_seq >= $2 and j.state >= {first_ended} and j.completed_at < $3
    returning j.seq, j.log_seq
)
delete from convoke_logs l using trimmed t where l.job = t.seq and l.seq > t.log_seq
