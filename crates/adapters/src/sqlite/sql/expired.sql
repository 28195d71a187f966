select seq, log_seq, superseded
from jobs indexed by jobs_cleaned
where state = ?1 and state >= {first_ended} and channels_cleaned = 1 and completed_at < ?2
order by completed_at
limit ?3
