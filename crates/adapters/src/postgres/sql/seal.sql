update convoke_cluster set sealed = $1 where id = 1 and sealed < $1
