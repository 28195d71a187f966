delete from convoke_unique_keys
where key in (
    select k.key
    from convoke_unique_keys k
    left join convoke_jobs j on j.id = k.job_id
    where k.until is not null and k.until < $1 and (j.state is null or j.state >= 5)
    limit $2
)
