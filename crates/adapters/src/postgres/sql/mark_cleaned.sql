delete from convoke_uncleaned u
using convoke_jobs j
where j.id = any ($1::uuid[]) and j.state >= {first_ended} and j.completed_at < $2
  and u.completed_at = j.completed_at and u.seq = j.seq
returning u.id
