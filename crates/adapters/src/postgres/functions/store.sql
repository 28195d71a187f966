-- Functions that statements call, and that store jobs with all checks, for coordinators and for applications inside
-- their own transactions: they look up conflicting jobs (by id, tick, unique key) and open new queues and types.
--
-- A caller's transaction may stay open for long. It locks the rows of its own jobs, of its unique keys, of queues and
-- types that it opened, and nothing that others need for other jobs.

-- Undoes a statement that would end a run without its job.
create or replace function convoke_whole(runs bigint, jobs bigint) returns boolean language plpgsql stable as $$
begin
    if runs <> jobs then
        raise exception 'of % runs that ended, % jobs were found', runs, jobs using errcode = 'data_corrupted';
    end if;
    return true;
end
$$;

-- Opens a queue. The limit bounds the memory of coordinators and is not exact: transactions that open queues at the
-- same time do not wait for each other.
create or replace function convoke_open_queue(queue text) returns int
language plpgsql set search_path from current as $$
declare
    found_id int;
begin
    -- Ids rise by one or more: below the limit there is no need to count.
    if coalesce((select max(q.id) from convoke_queues q), 0) >= {queues_max}
       and (select count(*) from convoke_queues q where not q.deleted) >= {queues_max}
       and not exists (select 1 from convoke_queues q where q.name = queue and not q.deleted) then
        raise exception 'expected one of the {queues_max} queues there are, got %', to_json(queue)
            using errcode = 'CV001';
    end if;
    insert into convoke_queues (name) values (queue) on conflict (name) do nothing;
    update convoke_queues q set deleted = false where q.name = queue and q.deleted;
    select q.id into strict found_id from convoke_queues q where q.name = queue;
    return found_id;
end
$$;

create or replace function convoke_open_type(type text) returns int
language plpgsql set search_path from current as $$
declare
    found_id int;
begin
    insert into convoke_types (name) values (type) on conflict (name) do nothing;
    select t.id into strict found_id from convoke_types t where t.name = type;
    return found_id;
end
$$;

-- Returns the job that has a key at `now`: a live one, or the last one until the key expires. The key stays locked
-- until the transaction ends. Two statements, because the one that waits for the lock does not see the change that it
-- waited for.
create or replace function convoke_key_holder(wanted text, now_us bigint) returns uuid
language plpgsql as $$
declare
    holder uuid;
begin
    insert into convoke_unique_keys (key, job_id) values (wanted, null)
    on conflict (key) do update set key = excluded.key;
    select k.job_id into holder
    from convoke_unique_keys k
    left join convoke_jobs j on j.id = k.job_id
    where k.key = wanted and (j.state < {first_ended} or k.until > now_us);
    return holder;
end
$$;

-- Stores one job. Returns its id, or that of the conflicting job.
create or replace function convoke_store_job(new convoke_new_job, out id uuid, out created boolean)
language plpgsql as $$
declare
    new_queue_id int;
    new_type_id  int;
    new_seq      bigint;
    new_pack     bigint;
    new_due_at   bigint   := greatest(new.run_at, new.created_at);
    new_rank     bigint   := new_due_at - new.priority * {head_start_us};
    new_state    smallint := case when new.run_at > new.created_at then {scheduled} else {pending} end;
begin
    created := false;
    select j.id into id from convoke_jobs j where j.id = new.id;
    if not found and new.schedule is not null then
        select j.id into id from convoke_jobs j where j.schedule = new.schedule and j.tick = new.run_at;
    end if;
    if id is null and new.unique_key is not null then
        id := convoke_key_holder(new.unique_key, new.created_at);
    end if;
    if id is not null then
        update convoke_unique_keys k set until = 0 where k.key = new.unique_key and k.job_id is null;
        return;
    end if;
    select q.id into new_queue_id from convoke_queues q where q.name = new.queue and not q.deleted;
    if not found then
        new_queue_id := convoke_open_queue(new.queue);
    end if;
    select t.id into new_type_id from convoke_types t where t.name = new.type;
    if not found then
        new_type_id := convoke_open_type(new.type);
    end if;
    insert into convoke_jobs as j (id, due_at, created_at, scheduled_at, tick, queue_id, type_id, state, priority, schedule,
                                   unique_key, keys, document, args)
    values (new.id, new_due_at, new.created_at, new.run_at, case when new.schedule is not null then new.run_at end,
            new_queue_id, new_type_id, new_state, new.priority, new.schedule, new.unique_key, new.keys, new.document, new.args)
    on conflict do nothing
    returning j.seq, j.pack into new_seq, new_pack;
    if not found then
        -- Another transaction was faster: with the same id, or the same tick.
        select j.id into id from convoke_jobs j where j.id = new.id;
        if not found then
            select j.id into id from convoke_jobs j where j.schedule = new.schedule and j.tick = new.run_at;
        end if;
        update convoke_unique_keys k set until = 0 where k.key = new.unique_key and k.job_id is null;
        return;
    end if;
    insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, schedule, seqs, ranks, args_bytes)
    values (new_pack, new_due_at, new_rank, new_queue_id, 0, new.priority, new_state = {scheduled}, new.schedule,
            array[new_seq], array[new_rank], array[octet_length(new.args)]);
    insert into convoke_count_deltas (queue_id, pending, scheduled)
    values (new_queue_id, (new_state = {pending})::int, (new_state = {scheduled})::int);
    if new.keys is not null then
        insert into convoke_job_keys (key, seq) select key, new_seq from unnest(new.keys) key;
    end if;
    if new.unique_key is not null then
        update convoke_unique_keys k set job_id = new.id, until = new.key_until where k.key = new.unique_key;
    end if;
    id := new.id;
    created := true;
end
$$;

-- Stores jobs in order, all or nothing. Keys, new queues and new types are locked in one order first, so that two batches
-- cannot wait for each other.
create or replace function convoke_store_jobs(jobs convoke_new_job[]) returns table (id uuid, created boolean)
language plpgsql set search_path from current as $$
begin
    perform convoke_key_holder(k.key, 0)
    from (select distinct n.unique_key collate "C" as key from unnest(jobs) n where n.unique_key is not null order by 1) k;
    perform convoke_open_queue(n.name)
    from (select distinct n.queue collate "C" as name from unnest(jobs) n order by 1) n
    where not exists (select 1 from convoke_queues q where q.name = n.name and not q.deleted);
    perform convoke_open_type(n.name)
    from (select distinct n.type collate "C" as name from unnest(jobs) n order by 1) n
    where not exists (select 1 from convoke_types t where t.name = n.name);
    return query
        select s.id, s.created
        from generate_subscripts(jobs, 1) n
        cross join lateral convoke_store_job(jobs[n]) s;
end
$$;

-- Stores the jobs of several calls, each of which is all or nothing by itself; `calls` has the number of each job's
-- call, in order. A call that is rejected, or that needs a lock which another transaction holds, is undone and reported
-- with its error. The others are stored. Waits are short: another transaction may hold a key for long.
create or replace function convoke_store_calls(calls int[], jobs convoke_new_job[])
returns table (call int, id uuid, created boolean, error_code text, error_message text)
language plpgsql set search_path from current set lock_timeout = '20ms' as $$
declare
    began timestamptz := clock_timestamp();
    a     int := 1;
    z     int;
begin
    while a <= cardinality(jobs) loop
        z := a;
        while z < cardinality(jobs) and calls[z + 1] = calls[a] loop
            z := z + 1;
        end loop;
        if clock_timestamp() - began > interval '200 ms' then
            perform set_config('lock_timeout', '1ms', true);
        end if;
        begin
            return query
                select calls[a], s.id, s.created, null::text, null::text from convoke_store_jobs(jobs[a:z]) s;
        exception when others then
            return query select calls[a], null::uuid, null::boolean, sqlstate::text, sqlerrm::text;
        end;
        a := z + 1;
    end loop;
end
$$;

-- Makes an ended job pending again. Returns whether it did; then the caller has to count it.
create or replace function convoke_redrive(job uuid, now_us bigint, out done boolean, out of_queue int, out ended_as smallint)
language plpgsql as $$
declare
    j      convoke_jobs;
    holder uuid;
    rank   bigint;
begin
    done := false;
    select * into j from convoke_jobs where id = job for update;
    if not found or j.state not in ({dead_letter}, {cancelled}) then
        return;
    end if;
    rank := now_us - j.priority * {head_start_us};
    if j.unique_key is not null then
        holder := convoke_key_holder(j.unique_key, now_us);
        if holder is null then
            update convoke_unique_keys set job_id = job, until = null where key = j.unique_key;
        elsif holder <> job then
            return;
        end if;
    end if;
    delete from convoke_ended where state = j.state and completed_at = j.completed_at and seq = j.seq;
    delete from convoke_uncleaned where completed_at = j.completed_at and seq = j.seq;
    if j.execution_id is not null then
        insert into convoke_executions (job, number, execution_id, attempt, status, started_at, ended_at, worker, error)
        values (j.seq, j.superseded, j.execution_id, j.attempt, j.run_end, j.started_at, j.completed_at, j.worker, j.error);
    end if;
    update convoke_jobs
    set state = {pending}, due_at = now_us, attempt_base = attempt,
        superseded = superseded + (execution_id is not null)::int,
        scheduled_at = case when schedule is not null then scheduled_at end,
        run_end = null, execution_id = null, worker = null, owner = null, progress = null, progress_message = null,
        dispatched_at = null, started_at = null, completed_at = null, result = null, pack = default, place = 0
    where seq = j.seq
    returning pack into j.pack;
    insert into convoke_waiting (pack, due_at, rank, queue_id, first, priority, scheduled, schedule, seqs, ranks, args_bytes)
    values (j.pack, now_us, rank, j.queue_id, 0, j.priority, false, j.schedule, array[j.seq], array[rank],
            array[octet_length(j.args)]);
    done := true;
    of_queue := j.queue_id;
    ended_as := j.state;
end
$$;
