select owner from jobs where id = ?1 and execution_id = ?2 and state in (3, 4)
