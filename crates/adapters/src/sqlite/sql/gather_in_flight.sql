select seq from jobs indexed by jobs_in_flight where state in (3, 4) and seq < ?1 and (?2 is null or queue_id = ?2)
