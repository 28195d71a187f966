select seq from jobs indexed by jobs_pending where state = 1 and queue_id = ?2 and seq < ?1
