delete from unique_keys
where key in (
    select k.key
    from unique_keys k
    left join jobs j on j.id = k.job_id
    where k.until is not null and k.until < ?1 and (j.state is null or j.state >= {first_ended})
    limit ?2
)
