select id from jobs where id = ?1
union all
select id from jobs where schedule = ?2 and scheduled_at = ?3
limit 1
