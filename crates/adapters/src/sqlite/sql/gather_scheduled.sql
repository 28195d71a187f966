select seq from jobs indexed by jobs_scheduled where state = 2 and seq < ?1 and (?2 is null or queue_id = ?2)
