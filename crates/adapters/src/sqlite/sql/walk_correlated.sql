select seq from jobs indexed by jobs_correlated where correlation_id = ?2 and correlation_id is not null and seq < ?1 order by seq desc
