insert into convoke_leases as l (namespace, holder, epoch, expires_at)
values ($1, $2, $4::bigint + 1, clock_timestamp() + $3::float8 * interval '1 millisecond')
on conflict (namespace) do update
set holder = excluded.holder, epoch = greatest(l.epoch, $4::bigint) + 1,
    expires_at = clock_timestamp() + $3::float8 * interval '1 millisecond'
where l.expires_at <= clock_timestamp()
returning holder, epoch, (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint as left_ms
