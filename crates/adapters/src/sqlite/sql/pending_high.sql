select seq, due_at from jobs indexed by jobs_pending where queue_id = ?1 and priority = 2 and state = 1 order by due_at, seq
