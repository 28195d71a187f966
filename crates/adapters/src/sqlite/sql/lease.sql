select holder, epoch, expires_at - cast(unixepoch('now', 'subsec') * 1000 as integer)
from leases
where namespace = ?1 and expires_at > cast(unixepoch('now', 'subsec') * 1000 as integer)
