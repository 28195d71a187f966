select 1 from convoke_jobs where type_id = $1 offset $2 limit 1
