select holder, epoch, expires_at - {now} as left_ms
from leases
where namespace = ?1 and expires_at > {now}
