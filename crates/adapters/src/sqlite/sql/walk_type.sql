select seq from jobs indexed by jobs_of_type where type_id = ?2 and seq < ?1 order by seq desc
