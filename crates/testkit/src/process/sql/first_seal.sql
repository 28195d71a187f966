-- The seal from before the chronicle began.
insert into public.chronicle (xid, writer, what, after)
select pg_current_xact_id()::text, $1::text, 'convoke_cluster', to_jsonb(c) from convoke_cluster c where sealed > 0
