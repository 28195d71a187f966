insert into logs (job, seq, at, level, execution_id, message) values (?1, ?2, ?3, ?4, ?5, ?6)
