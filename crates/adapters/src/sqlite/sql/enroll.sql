insert into members (namespace, member, expires_at)
values (?1, ?2, {now} + ?3)
on conflict (namespace, member) do update set expires_at = excluded.expires_at
