insert into leases (namespace, holder, epoch, expires_at)
values (?1, ?2, ?4 + 1, {now} + ?3)
on conflict (namespace) do update
set holder = excluded.holder, epoch = max(epoch, ?4) + 1, expires_at = excluded.expires_at
where expires_at <= {now}
returning holder, epoch, expires_at - {now} as left_ms
