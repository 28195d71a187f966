with expired as (
    delete from convoke_members where namespace = $1 and member <> $2 and expires_at <= clock_timestamp()
)
insert into convoke_members (namespace, member, expires_at)
values ($1, $2, clock_timestamp() + $3::float8 * interval '1 millisecond')
on conflict (namespace, member) do update set expires_at = excluded.expires_at
