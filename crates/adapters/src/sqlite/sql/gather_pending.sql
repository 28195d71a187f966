select seq from jobs indexed by jobs_pending where state = 1 and seq < ?1 and ?2 is null
