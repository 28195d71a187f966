update leases
set expires_at = {now} + ?4
where namespace = ?1 and holder = ?2 and epoch = ?3 and expires_at > {now}
returning holder, epoch, expires_at - {now} as left_ms
