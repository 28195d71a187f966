with ended as (
    update convoke_leases set expires_at = '-infinity'
    where namespace = $1 and holder = $2 and epoch = $3
    returning namespace
)
select pg_notify('convoke_resignations', current_schema() || '.' || namespace)
from ended
