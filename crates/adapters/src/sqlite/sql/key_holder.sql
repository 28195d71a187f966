select k.job_id
from unique_keys k
left join jobs j on j.id = k.job_id
where k.key = ?1 and (j.state < {first_ended} or k.until > ?2)
