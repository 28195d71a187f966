select holder, epoch, (extract(epoch from expires_at - clock_timestamp()) * 1000)::bigint as left_ms
from convoke_leases
where namespace = $1 and expires_at > clock_timestamp()
