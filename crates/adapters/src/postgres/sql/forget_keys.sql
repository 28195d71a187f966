-- The row is compared again for the delete: a transaction that had it locked may have assigned the key to another job.
delete from convoke_unique_keys u
using (
    select k.key, k.job_id, k.until
    from convoke_unique_keys k
    left join convoke_jobs j on j.id = k.job_id
    where k.until is not null and k.until < $1 and (j.state is null or j.state >= {first_ended})
    limit $2
) k
where u.key = k.key and u.job_id is not distinct from k.job_id and u.until = k.until
