select 1 from jobs indexed by jobs_of_type where type_id = ?1 limit 1 offset ?2
