insert into convoke_shard_roster (service, worker)
select * from unnest($1::text[], $2::text[])
on conflict do nothing
