-- Drops Convoke functions that this transaction has not written: their signature is of another version. An
-- application's own functions stay, whatever they are called.
do $$
declare
    other regprocedure;
begin
    for other in
        select p.oid::regprocedure
        from pg_proc p
        where p.pronamespace = quote_ident(current_schema())::regnamespace and p.proname in ({names})
          and p.xmin <> pg_current_xact_id()::xid
    loop
        execute format('drop function %s', other);
    end loop;
end
$$;
