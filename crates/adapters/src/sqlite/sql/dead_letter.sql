select seq, log_seq, superseded from jobs where id = ?1 and state in (6, 7)
