select id from convoke_jobs where id = any ($1::uuid[]) and state < 5
