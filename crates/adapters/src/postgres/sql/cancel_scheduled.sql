delete from convoke_waiting w
using convoke_jobs j
where j.id = any ($1::uuid[]) and j.state < 5
  and w.due_at = j.due_at and w.seq = j.seq and w.scheduled
returning j.id, j.seq
