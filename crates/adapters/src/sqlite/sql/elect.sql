insert into leases (namespace, holder, epoch, expires_at)
values (?1, ?2, ?4 + 1, cast(unixepoch('now', 'subsec') * 1000 as integer) + ?3)
on conflict (namespace) do update
set holder = excluded.holder, epoch = max(epoch, ?4) + 1, expires_at = excluded.expires_at
where expires_at <= cast(unixepoch('now', 'subsec') * 1000 as integer)
returning holder, epoch, expires_at - cast(unixepoch('now', 'subsec') * 1000 as integer)
