select seq from jobs indexed by jobs_of_queue where queue_id = ?2 and seq < ?1 order by seq desc
