select 1 from cluster where id = 1 and sealed = ?1
