select seq from convoke_jobs where id = any ($1::uuid[]) and state in (6, 7) for update
