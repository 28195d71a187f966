select state, queue_id, type_id, correlation_id from jobs where seq = ?1
