select id, type_id, args, attempt + 1, max_retries, timeout, correlation_id from jobs where seq = ?1 and state = 1
