select id, execution_id, owner from convoke_runs where id = any ($1::uuid[])
