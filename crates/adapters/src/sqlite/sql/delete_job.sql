delete from jobs where seq = ?1 returning queue_id, state, superseded, log_seq, unique_key, id
