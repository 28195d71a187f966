update leases set expires_at = 0 where namespace = ?1 and holder = ?2 and epoch = ?3
