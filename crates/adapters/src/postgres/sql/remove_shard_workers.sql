delete from convoke_shard_roster
using unnest($1::text[], $2::text[]) as gone (service, worker)
where convoke_shard_roster.service = gone.service and convoke_shard_roster.worker = gone.worker
