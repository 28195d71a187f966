insert into unique_keys (key, job_id, until) values (?1, ?2, ?3)
on conflict (key) do update set job_id = excluded.job_id, until = excluded.until
