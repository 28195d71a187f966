-- Makes the store keep a record of all that is written to it, in its order, with whose connection it came by and in which
-- transaction. In the transaction of the write itself: what is rolled back or lost was never written.

create table public.chronicle (
    seq    bigint generated always as identity primary key,
    xid    text  not null,
    writer text  not null,
    what   text  not null,
    before jsonb,
    after  jsonb
);

create function public.chronicle_note() returns trigger language plpgsql as $$
begin
    insert into public.chronicle (xid, writer, what, before, after)
    values (pg_current_xact_id()::text, current_setting('application_name'), tg_table_name,
            case when tg_op <> 'INSERT' then to_jsonb(old) - 'args' end,
            case when tg_op <> 'DELETE' then to_jsonb(new) - 'args' end);
    return null;
end
$$;

create trigger chronicle after insert or update or delete on convoke_cluster
    for each row execute function public.chronicle_note();
create trigger chronicle after insert or update or delete on convoke_jobs
    for each row execute function public.chronicle_note();
create trigger chronicle after insert or update or delete on convoke_runs
    for each row execute function public.chronicle_note();
create trigger chronicle after insert on convoke_flights
    for each row execute function public.chronicle_note();
