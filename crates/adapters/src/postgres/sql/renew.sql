update convoke_leases
set expires_at = clock_timestamp() + $4::float8 * interval '1 millisecond'
where namespace = $1 and holder = $2 and epoch = $3 and expires_at > clock_timestamp()
returning holder, epoch, (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint as left_ms
