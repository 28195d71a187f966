update leases
set expires_at = cast(unixepoch('now', 'subsec') * 1000 as integer) + ?4
where namespace = ?1 and holder = ?2 and epoch = ?3 and expires_at > cast(unixepoch('now', 'subsec') * 1000 as integer)
returning holder, epoch, expires_at - cast(unixepoch('now', 'subsec') * 1000 as integer)
