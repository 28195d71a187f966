update convoke_leases set expires_at = '-infinity' where namespace = $1 and holder = $2 and epoch = $3
