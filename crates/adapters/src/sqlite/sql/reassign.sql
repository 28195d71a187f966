update jobs
set owner = coalesce(?4, owner), ownership = ?5
where id = ?1 and execution_id = ?2 and state in ({in_flight})
  and (owner = ?3 or (?4 is not null and (owner is null or ownership = {orphan_pending})))
