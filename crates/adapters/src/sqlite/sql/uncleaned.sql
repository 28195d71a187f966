select id
from jobs indexed by jobs_uncleaned
where state >= {first_ended} and channels_cleaned = 0 and completed_at < ?1
order by completed_at, seq
limit ?2
