select 1 from convoke_cluster where id = 1 and sealed = $1 for share
