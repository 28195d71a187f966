-- Enqueueing with care, by us and by applications inside their own transactions: whatever is in the way of a job (its id,
-- its tick, its unique key) is looked at, queues and types that are new are opened.
--
-- A caller's transaction may stay open for long. What it holds meanwhile: the rows of its own jobs, of its unique keys, of
-- queues and types that it opened. Nothing that others need for other jobs.

-- Opens a queue. The limit is a bound on what we keep in memory, not an exact number: transactions that open queues at the
-- same time do not wait for each other.
create function convoke_open_queue(queue text) returns int
language plpgsql set search_path from current as $$
declare
    found_id int;
begin
    -- Ids rise by one or more: below the limit there is no need to count.
    if coalesce((select max(q.id) from convoke_queues q), 0) >= 10000
       and (select count(*) from convoke_queues q where not q.deleted) >= 10000
       and not exists (select 1 from convoke_queues q where q.name = queue and not q.deleted) then
        raise exception 'expected one of the 10000 queues there are, got %', to_json(queue)
            using errcode = 'CV001';
    end if;
    insert into convoke_queues (name) values (queue) on conflict (name) do nothing;
    update convoke_queues q set deleted = false where q.name = queue and q.deleted;
    select q.id into strict found_id from convoke_queues q where q.name = queue;
    return found_id;
end
$$;

create function convoke_open_type(type text) returns int
language plpgsql set search_path from current as $$
declare
    found_id int;
begin
    insert into convoke_types (name) values (type) on conflict (name) do nothing;
    select t.id into strict found_id from convoke_types t where t.name = type;
    return found_id;
end
$$;

-- Who has a key at `now`: a live job, or whichever had it last until its time is over. The key stays locked until the
-- transaction ends. Two statements, because the one that waits for the lock does not see what it waited for.
create function convoke_key_holder(wanted text, now_us bigint) returns uuid
language plpgsql as $$
declare
    holder uuid;
begin
    insert into convoke_unique_keys (key, job_id) values (wanted, null)
    on conflict (key) do update set key = excluded.key;
    select k.job_id into holder
    from convoke_unique_keys k
    left join convoke_jobs j on j.id = k.job_id
    where k.key = wanted and (j.state < 5 or k.until > now_us);
    return holder;
end
$$;

-- One job, everything about it checked by the caller.
create function convoke_store_job(
    new_id uuid, new_type text, new_queue text, new_args text, new_priority smallint, new_max_retries int,
    new_retry_initial bigint, new_retry_multiplier float8, new_retry_max bigint, new_retry_jitter smallint,
    new_timeout bigint, new_correlation text, new_key text, new_key_until bigint, new_created_at bigint,
    new_run_at bigint, new_schedule text, out id uuid, out created boolean
) language plpgsql as $$
declare
    new_queue_id int;
    new_type_id  int;
    new_seq      bigint;
    new_due_at   bigint   := greatest(coalesce(new_run_at, new_created_at), new_created_at);
    new_state    smallint := case when new_run_at > new_created_at then 2 else 1 end;
begin
    created := false;
    select j.id into id from convoke_jobs j where j.id = new_id;
    if not found and new_schedule is not null then
        select j.id into id from convoke_jobs j where j.schedule = new_schedule and j.tick = new_run_at;
    end if;
    if id is null and new_key is not null then
        id := convoke_key_holder(new_key, new_created_at);
    end if;
    if id is not null then
        update convoke_unique_keys k set until = 0 where k.key = new_key and k.job_id is null;
        return;
    end if;
    select q.id into new_queue_id from convoke_queues q where q.name = new_queue and not q.deleted;
    if not found then
        new_queue_id := convoke_open_queue(new_queue);
    end if;
    select t.id into new_type_id from convoke_types t where t.name = new_type;
    if not found then
        new_type_id := convoke_open_type(new_type);
    end if;
    insert into convoke_jobs as j (id, due_at, created_at, scheduled_at, tick, timeout, retry_initial, retry_multiplier,
                                   retry_max, queue_id, type_id, max_retries, state, priority, retry_jitter, schedule,
                                   correlation_id, unique_key, args)
    values (new_id, new_due_at, new_created_at, new_run_at, case when new_schedule is not null then new_run_at end,
            new_timeout, new_retry_initial, new_retry_multiplier, new_retry_max, new_queue_id, new_type_id,
            new_max_retries, new_state, new_priority, new_retry_jitter, new_schedule, new_correlation, new_key, new_args)
    on conflict do nothing
    returning j.seq into new_seq;
    if not found then
        -- Somebody else's transaction was faster: by the same id, or by the same tick.
        select j.id into id from convoke_jobs j where j.id = new_id;
        if not found then
            select j.id into id from convoke_jobs j where j.schedule = new_schedule and j.tick = new_run_at;
        end if;
        update convoke_unique_keys k set until = 0 where k.key = new_key and k.job_id is null;
        return;
    end if;
    insert into convoke_waiting (seq, due_at, queue_id, args_bytes, priority, scheduled, schedule)
    values (new_seq, new_due_at, new_queue_id, octet_length(new_args), new_priority, new_state = 2, new_schedule);
    insert into convoke_count_deltas (queue_id, pending, scheduled)
    values (new_queue_id, (new_state = 1)::int, (new_state = 2)::int);
    if new_key is not null then
        update convoke_unique_keys k set job_id = new_id, until = new_key_until where k.key = new_key;
    end if;
    id := new_id;
    created := true;
end
$$;

-- Jobs in order, all or nothing. Keys, new queues and new types are locked in one order first, so that two batches cannot wait
-- for each other.
create function convoke_store_jobs(
    ids uuid[], types text[], queues text[], args text[], priorities smallint[], max_retries int[],
    retry_initials bigint[], retry_multipliers float8[], retry_maxs bigint[], retry_jitters smallint[],
    timeouts bigint[], correlations text[], keys text[], key_untils bigint[], created_ats bigint[],
    run_ats bigint[], schedules text[]
) returns table (id uuid, created boolean)
language plpgsql set search_path from current as $$
begin
    perform convoke_key_holder(k.key, 0)
    from (select distinct key collate "C" as key from unnest(keys) key where key is not null order by 1) k;
    perform convoke_open_queue(n.name)
    from (select distinct name collate "C" as name from unnest(queues) name order by 1) n
    where not exists (select 1 from convoke_queues q where q.name = n.name and not q.deleted);
    perform convoke_open_type(n.name)
    from (select distinct name collate "C" as name from unnest(types) name order by 1) n
    where not exists (select 1 from convoke_types t where t.name = n.name);
    return query
        select s.id, s.created
        from generate_subscripts(ids, 1) n
        cross join lateral convoke_store_job(
            ids[n], types[n], queues[n], args[n], priorities[n], max_retries[n], retry_initials[n],
            retry_multipliers[n], retry_maxs[n], retry_jitters[n], timeouts[n], correlations[n], keys[n], key_untils[n],
            created_ats[n], run_ats[n], schedules[n]) s;
end
$$;

-- Jobs of several calls, of which each is all or nothing by itself; `calls` has the number of each job's call, in order. A call
-- that is rejected, or that needs a lock which another transaction keeps, is undone and reported by its error. The others are
-- stored. Waits are short: a key that another transaction holds may stay locked for long.
create function convoke_store_calls(
    calls int[], ids uuid[], types text[], queues text[], args text[], priorities smallint[], max_retries int[],
    retry_initials bigint[], retry_multipliers float8[], retry_maxs bigint[], retry_jitters smallint[],
    timeouts bigint[], correlations text[], keys text[], key_untils bigint[], created_ats bigint[],
    run_ats bigint[], schedules text[]
) returns table (call int, id uuid, created boolean, error_code text, error_message text)
language plpgsql set search_path from current set lock_timeout = '20ms' as $$
declare
    began timestamptz := clock_timestamp();
    a     int := 1;
    z     int;
begin
    while a <= cardinality(ids) loop
        z := a;
        while z < cardinality(ids) and calls[z + 1] = calls[a] loop
            z := z + 1;
        end loop;
        if clock_timestamp() - began > interval '200 ms' then
            perform set_config('lock_timeout', '1ms', true);
        end if;
        begin
            return query
                select calls[a], s.id, s.created, null::text, null::text
                from convoke_store_jobs(
                    ids[a:z], types[a:z], queues[a:z], args[a:z], priorities[a:z], max_retries[a:z], retry_initials[a:z],
                    retry_multipliers[a:z], retry_maxs[a:z], retry_jitters[a:z], timeouts[a:z], correlations[a:z],
                    keys[a:z], key_untils[a:z], created_ats[a:z], run_ats[a:z], schedules[a:z]) s;
        exception when others then
            return query select calls[a], null::uuid, null::boolean, sqlstate::text, sqlerrm::text;
        end;
        a := z + 1;
    end loop;
end
$$;

-- An id that sorts by its time.
create function convoke_new_id() returns uuid language sql volatile as $$
    select encode(
        int8send((extract(epoch from clock_timestamp()) * 1000)::bigint << 16 | 28672 | (random() * 4095)::bigint)
        || substring(uuid_send(gen_random_uuid()) from 9),
        'hex')::uuid
$$;

create function convoke_refuse(field text, message text) returns void language plpgsql as $$
begin
    raise exception '%: %', field, message using errcode = 'invalid_parameter_value';
end
$$;

create function convoke_check_name(field text, value text) returns text language plpgsql as $$
begin
    if value is null or value = '' then
        perform convoke_refuse(field, 'expected a name of 1 to 255 bytes, got an empty one');
    elsif octet_length(value) > 255 then
        perform convoke_refuse(field, format('expected a name of at most 255 bytes, got %s bytes', octet_length(value)));
    elsif value ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform convoke_refuse(field, 'expected a name without control characters, got one in it');
    end if;
    return value;
end
$$;

create function convoke_check_key(field text, value text) returns text language plpgsql as $$
begin
    if value = '' then
        perform convoke_refuse(field, 'expected 1 to 255 bytes, got an empty string; leave it out for none');
    elsif octet_length(value) > 255 then
        perform convoke_refuse(field, format('expected at most 255 bytes, got %s', octet_length(value)));
    end if;
    return value;
end
$$;

-- Microseconds of an interval: none below zero, a hundred years at most.
create function convoke_check_interval(field text, value interval) returns bigint language plpgsql as $$
declare
    us numeric := extract(epoch from value) * 1000000;
begin
    if us < 0 then
        perform convoke_refuse(field, format('expected no less than zero, got %s', value));
    elsif us > 3153600000000000 then
        perform convoke_refuse(field, format('expected at most 100 years, got %s', value));
    end if;
    return us::bigint;
end
$$;

-- What a coordinator would refuse: too large, nested too deep, a number beyond a double.
create function convoke_check_args(value jsonb) returns text language plpgsql as $$
declare
    shown text := value::text;
    deepest int;
begin
    if octet_length(shown) > 1048576 then
        perform convoke_refuse('args', format('expected at most 1048576 bytes of JSON, got %s', octet_length(shown)));
    end if;
    -- Only what could offend is walked through.
    if length(shown) - length(translate(shown, '{[', '')) > 64 or shown ~ '[0-9]{200}[0-9]{109}' then
        with recursive walk (part, depth) as (
            select value, case when jsonb_typeof(value) in ('object', 'array') then 1 else 0 end
            union all
            select c.part, w.depth + case when jsonb_typeof(c.part) in ('object', 'array') then 1 else 0 end
            from walk w
            cross join lateral (
                select e as part
                from jsonb_array_elements(case jsonb_typeof(w.part) when 'array' then w.part else '[]' end) e
                union all
                select e.value from jsonb_each(case jsonb_typeof(w.part) when 'object' then w.part else '{}' end) e
            ) c
            where w.depth <= 64
        )
        select max(case when jsonb_typeof(part) = 'number' and abs(part::numeric) > 1.7976931348623157e308
                        then 1000 else depth end)
        into deepest
        from walk;
        if deepest = 1000 then
            perform convoke_refuse('args', 'expected numbers of at most 1.7976931348623157e308 either way of zero');
        elsif deepest > 64 then
            perform convoke_refuse('args', 'expected JSON nested at most 64 deep');
        end if;
    end if;
    return shown;
end
$$;

-- Enqueues a job inside the caller's transaction: it is there when that commits, and never was when it does not. Answers the
-- job's id, or that of the job which has its unique key or its id already. A coordinator finds it within a second.
--
--     select convoke_enqueue('email.send', '{"to": "a@b.c"}', queue => 'email', delay => interval '5 minutes');
create function convoke_enqueue(
    type           text,
    args           jsonb       default '{}',
    queue          text        default 'default',
    priority       text        default 'normal',
    run_at         timestamptz default null,
    delay          interval    default null,
    max_retries    int         default 3,
    timeout        interval    default null,
    correlation_id text        default null,
    unique_key     text        default null,
    unique_for     interval    default null,
    id             uuid        default null
) returns uuid
language plpgsql set search_path from current as $$
#variable_conflict use_variable
declare
    now_us     bigint := extract(epoch from clock_timestamp()) * 1000000;
    run_at_us  bigint;
    delay_us   bigint := convoke_check_interval('delay', delay);
    timeout_us bigint := convoke_check_interval('timeout', timeout);
    unique_us  bigint := convoke_check_interval('unique_for', unique_for);
    level      int    := array_position(array['low', 'normal', 'high', 'critical'], coalesce(priority, 'normal')) - 1;
    stored     uuid;
begin
    perform convoke_check_name('type', type);
    perform convoke_check_name('queue', coalesce(queue, 'default'));
    perform convoke_check_key('correlation_id', correlation_id);
    perform convoke_check_key('unique_key', unique_key);
    if level is null then
        perform convoke_refuse('priority', format('expected low, normal, high or critical, got %s', to_json(priority)));
    elsif delay is not null and run_at is not null then
        perform convoke_refuse('run_at', 'expected either delay or run_at, got both');
    elsif run_at is not null and (not isfinite(run_at) or run_at >= timestamptz '9999-12-30 00:00:00Z') then
        perform convoke_refuse('run_at', format('expected a time before the year 10000, got %s', run_at));
    elsif id in ('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff') then
        perform convoke_refuse('id', format('expected a UUID other than the nil and the max UUID, got %s', id));
    elsif coalesce(max_retries, 3) not between 0 and 1000 then
        perform convoke_refuse('max_retries', format('expected 0 to 1000, got %s', max_retries));
    elsif timeout_us = 0 then
        perform convoke_refuse('timeout', 'expected an interval longer than zero; leave it out for no timeout');
    elsif unique_for is not null and unique_key is null then
        perform convoke_refuse('unique_for', 'expected only together with unique_key');
    end if;
    if delay_us > 0 then
        run_at_us := now_us + delay_us;
    elsif run_at is not null then
        run_at_us := extract(epoch from run_at) * 1000000;
    end if;
    if run_at_us <= now_us then
        run_at_us := null;
    end if;
    select s.id into stored
    from convoke_store_job(
        coalesce(id, convoke_new_id()), type, coalesce(queue, 'default'),
        convoke_check_args(coalesce(args, 'null')), level::smallint, coalesce(max_retries, 3),
        10000000, 2.0, 600000000, 0::smallint, timeout_us, correlation_id, unique_key, now_us + unique_us, now_us,
        run_at_us, null) s;
    return stored;
end
$$;

-- Makes an ended job pending again: `answer` is 0 where it is unknown, 1 where it is refused, 2 where it is done; then the
-- caller has to count it.
create function convoke_redrive(job uuid, now_us bigint, out answer smallint, out of_queue int, out ended_as smallint)
language plpgsql as $$
declare
    j      convoke_jobs;
    holder uuid;
begin
    answer := 0;
    select * into j from convoke_jobs where id = job for update;
    if not found then
        return;
    end if;
    answer := 1;
    if j.state not in (6, 7, 8) then
        return;
    end if;
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
        values (j.seq, j.superseded, j.execution_id, j.attempt,
                coalesce(j.run_end, case j.state when 6 then 3 when 7 then 4 else 5 end),
                j.started_at, j.completed_at, j.worker, j.error);
    end if;
    update convoke_jobs
    set state = 1, due_at = now_us, attempt_base = attempt,
        superseded = superseded + (execution_id is not null)::int,
        scheduled_at = case when schedule is not null then scheduled_at end,
        run_end = null, execution_id = null, worker = null, owner = null, progress = null, progress_message = null,
        dispatched_at = null, started_at = null, completed_at = null, result = null
    where seq = j.seq;
    insert into convoke_waiting (seq, due_at, queue_id, args_bytes, priority, scheduled, schedule)
    values (j.seq, now_us, j.queue_id, octet_length(j.args), j.priority, false, j.schedule);
    answer := 2;
    of_queue := j.queue_id;
    ended_as := j.state;
end
$$;
