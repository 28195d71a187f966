select seq, queue_id, state, run_end, completed_at from jobs where id = ?1
