-- Enqueueing by applications inside their own transactions: the same job, document and search keys as
-- core::jobs::JobSpec::into_job makes, and the same errors. A new field of a job is added here, and nowhere else in
-- SQL.
--
-- Fields have their names in JSON. `as_json` is false for callers of the function with named parameters: then errors
-- name the parameter.

-- Returns an id that sorts by its time.
create or replace function convoke_new_id() returns uuid language sql volatile as $$
    select encode(
        int8send((extract(epoch from clock_timestamp()) * 1000)::bigint << 16 | 28672 | (random() * 4095)::bigint)
        || substring(uuid_send(gen_random_uuid()) from 9),
        'hex')::uuid
$$;

-- Returns the name of a field for the caller: retryPolicy.maxDelay, or retry_policy.maxDelay.
create or replace function convoke_field(as_json boolean, field text) returns text language sql immutable as $$
    select case when as_json then field
                else lower(regexp_replace(split_part(field, '.', 1), '([A-Z])', '_\1', 'g'))
                     || coalesce(substring(field from '\..*'), '') end
$$;

create or replace function convoke_refuse(as_json boolean, field text, message text) returns void language plpgsql as $$
begin
    raise exception '%: %', convoke_field(as_json, field), message using errcode = 'invalid_parameter_value';
end
$$;

create or replace function convoke_check_name(as_json boolean, field text, value text) returns text language plpgsql as $$
begin
    if value is null or value = '' then
        perform convoke_refuse(as_json, field, 'expected a name of 1 to {name_bytes_max} bytes, got an empty one');
    elsif octet_length(value) > {name_bytes_max} then
        perform convoke_refuse(as_json, field,
            format('expected a name of at most {name_bytes_max} bytes, got %s bytes', octet_length(value)));
    elsif value ~ '[\u0001-\u001f\u007f-\u009f]' then
        perform convoke_refuse(as_json, field, 'expected a name without control characters, got one in it');
    end if;
    return value;
end
$$;

create or replace function convoke_check_key(as_json boolean, field text, value text) returns void language plpgsql as $$
begin
    if value = '' then
        perform convoke_refuse(as_json, field,
            'expected 1 to {name_bytes_max} bytes, got an empty string; leave it out for none');
    elsif octet_length(value) > {name_bytes_max} then
        perform convoke_refuse(as_json, field,
            format('expected at most {name_bytes_max} bytes, got %s', octet_length(value)));
    end if;
end
$$;

-- Returns the microseconds of an interval: at least zero, at most a hundred years.
create or replace function convoke_check_interval(field text, value interval) returns bigint language plpgsql as $$
declare
    us numeric := extract(epoch from value) * 1000000;
begin
    if us < 0 then
        perform convoke_refuse(false, field, format('expected no less than zero, got %s', value));
    elsif us > {duration_max_us} then
        perform convoke_refuse(false, field, format('expected at most 100 years, got %s', value));
    end if;
    return us::bigint;
end
$$;

-- Returns the microseconds of a duration such as "1h30m", as core::duration reads it.
create or replace function convoke_read_duration(as_json boolean, field text, value jsonb) returns bigint
language plpgsql as $$
declare
    text  text := value #>> '{}';
    parts text[];
    us    numeric := 0;
begin
    if value is null or value = 'null' then
        return null;
    end if;
    if jsonb_typeof(value) = 'string' then
        parts := regexp_match(text, '^(?:([0-9]+)d)?(?:([0-9]+)h)?(?:([0-9]+)m)?(?:([0-9]+)s)?(?:([0-9]+)ms)?$');
    end if;
    if text = '0' and jsonb_typeof(value) = 'string' then
        return 0;
    elsif parts is null or text = '' then
        perform convoke_refuse(as_json, field,
            format('expected a duration such as "250ms", "30s" or "1h30m", got %s', value));
    end if;
    us := 1000 * (coalesce(parts[1]::numeric, 0) * 86400000 + coalesce(parts[2]::numeric, 0) * 3600000
                  + coalesce(parts[3]::numeric, 0) * 60000 + coalesce(parts[4]::numeric, 0) * 1000
                  + coalesce(parts[5]::numeric, 0));
    if us > {duration_max_us} then
        perform convoke_refuse(as_json, field, format('expected a duration of at most 100 years, got %s', value));
    end if;
    return us;
end
$$;

-- Returns the text of a duration, as core::duration writes it.
create or replace function convoke_write_duration(us bigint) returns text language sql immutable as $$
    select case when us < 1000 then '0s' else
           case when us >= 86400000000 then us / 86400000000 || 'd' else '' end
        || case when us / 3600000000 % 24 > 0 then us / 3600000000 % 24 || 'h' else '' end
        || case when us / 60000000 % 60 > 0 then us / 60000000 % 60 || 'm' else '' end
        || case when us / 1000000 % 60 > 0 then us / 1000000 % 60 || 's' else '' end
        || case when us / 1000 % 1000 > 0 then us / 1000 % 1000 || 'ms' else '' end end
$$;

-- Returns the time of an instant such as "2030-01-31T09:00:00Z", in the form that core::instant reads. Digits below a
-- microsecond are cut off, as a coordinator stores them.
create or replace function convoke_read_instant(field text, value jsonb) returns timestamptz language plpgsql as $$
declare
    at timestamptz;
begin
    if value is null or value = 'null' then
        return null;
    end if;
    begin
        if jsonb_typeof(value) = 'string' and value #>> '{}' ~ ('^(?!0000)[0-9]{4}-[0-9]{2}-[0-9]{2}[Tt ]([01][0-9]|2[0-3])'
            || '(:[0-5][0-9]){2}(\.[0-9]{1,9})?([Zz]|[+-](0[0-9]|1[0-5]):[0-5][0-9])$') then
            at := regexp_replace(value #>> '{}', '(\.[0-9]{6})[0-9]+', '\1');
        end if;
    exception when data_exception then
        at := null;
    end;
    if at is null or at >= timestamptz '9999-12-30 22:00:01Z' then
        perform convoke_refuse(true, field, format(
            'expected an instant such as "2030-01-31T09:00:00Z", 9999-12-30T22:00:00Z at the latest, got %s', value));
    end if;
    return at;
end
$$;

-- Returns the text of a JSON string. Null if it is left out.
create or replace function convoke_read_text(field text, value jsonb) returns text language plpgsql as $$
begin
    if jsonb_typeof(value) not in ('string', 'null') then
        perform convoke_refuse(true, field, format('expected a string, got %s', value));
    end if;
    return value #>> '{}';
end
$$;

-- Returns the id of a UUID in the forms that a coordinator reads.
create or replace function convoke_read_id(value jsonb) returns uuid language plpgsql as $$
declare
    shown text := lower(convoke_read_text('id', value));
    dashed text := '[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}';
begin
    if shown !~ format('^([0-9a-f]{32}|%1$s|\{%1$s\}|urn:uuid:%1$s)$', dashed) then
        perform convoke_refuse(true, 'id', format('expected a UUID, got %s', value));
    end if;
    return replace(shown, 'urn:uuid:', '')::uuid;
end
$$;

-- Returns the text of arguments. Rejects the same as a coordinator: too large, nested too deep, a number beyond a
-- double. The size is that without the spaces that jsonb writes.
create or replace function convoke_check_args(as_json boolean, value jsonb) returns text language plpgsql as $$
declare
    shown text := value::text;
    deepest int;
begin
    -- At most every second byte is such a space.
    if octet_length(shown) between {args_bytes_max} + 1 and 2 * {args_bytes_max} then
        shown := regexp_replace(shown, '("(?:[^"\\]|\\.)*")|([,:]) ', '\1\2', 'g');
    end if;
    if octet_length(shown) > {args_bytes_max} then
        perform convoke_refuse(as_json, 'args',
            format('expected at most {args_bytes_max} bytes of JSON, got %s', octet_length(shown)));
    end if;
    -- Walks through the value only if a limit may be exceeded.
    if length(shown) - length(translate(shown, '{[', '')) > {json_depth_max} or shown ~ '[0-9]{200}[0-9]{109}' then
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
            where w.depth <= {json_depth_max}
        )
        select max(case when jsonb_typeof(part) = 'number' and abs(part::numeric) > {number_max}
                        then 1000 else depth end)
        into deepest
        from walk;
        if deepest = 1000 then
            perform convoke_refuse(as_json, 'args', 'expected numbers of at most {number_max} either way of zero');
        elsif deepest > {json_depth_max} then
            perform convoke_refuse(as_json, 'args', 'expected JSON nested at most {json_depth_max} deep');
        end if;
    end if;
    return shown;
end
$$;

-- Returns the text of a complete retry policy. Omitted fields have the built-in defaults.
create or replace function convoke_check_policy(as_json boolean, value jsonb) returns text
language plpgsql set extra_float_digits = 1 as $$
declare
    built_in   jsonb := '{built_in_policy}';
    unknown    text;
    initial_us bigint;
    max_us     bigint;
    multiplier float8;
    jitter     text;
begin
    if jsonb_typeof(value) <> 'object' then
        perform convoke_refuse(as_json, 'retryPolicy', format('expected an object, got %s', value));
    end if;
    select key into unknown from jsonb_object_keys(value) key where not built_in ? key limit 1;
    if found then
        perform convoke_refuse(as_json, 'retryPolicy', format('unknown field `%s`', unknown));
    end if;
    value := built_in || value;
    initial_us := convoke_read_duration(as_json, 'retryPolicy.initialDelay', value -> 'initialDelay');
    max_us := convoke_read_duration(as_json, 'retryPolicy.maxDelay', value -> 'maxDelay');
    jitter := value ->> 'jitter';
    if initial_us is null or max_us is null then
        perform convoke_refuse(as_json, 'retryPolicy', 'expected a duration such as "250ms", "30s" or "1h30m", got null');
    elsif jsonb_typeof(value -> 'multiplier') <> 'number' then
        perform convoke_refuse(as_json, 'retryPolicy.multiplier',
            format('expected a number from 1 to 1000, got %s', value -> 'multiplier'));
    elsif jitter is null or jitter not in ('full', 'none') then
        perform convoke_refuse(as_json, 'retryPolicy.jitter', format('expected full or none, got %s', value -> 'jitter'));
    elsif (value ->> 'multiplier')::numeric not between 1 and 1000 then
        perform convoke_refuse(as_json, 'retryPolicy.multiplier',
            format('expected a number from 1 to 1000, got %s', (value ->> 'multiplier')::numeric::float8));
    elsif max_us < initial_us then
        perform convoke_refuse(as_json, 'retryPolicy.maxDelay', 'expected at least initialDelay');
    end if;
    multiplier := (value ->> 'multiplier')::float8;
    return format('{"initialDelay":"%s","multiplier":%s%s,"maxDelay":"%s","jitter":"%s"}',
        convoke_write_duration(initial_us), multiplier, case when multiplier = floor(multiplier) then '.0' else '' end,
        convoke_write_duration(max_us), jitter);
end
$$;

create or replace function convoke_check_tags(as_json boolean, tags text[]) returns void language plpgsql as $$
declare
    tag  text;
    seen text[] := '{}';
begin
    if cardinality(tags) > {tags_max} then
        perform convoke_refuse(as_json, 'tags', format('expected at most {tags_max} tags, got %s', cardinality(tags)));
    end if;
    foreach tag in array coalesce(tags, '{}') loop
        if coalesce(tag, '') = '' then
            perform convoke_refuse(as_json, format('tags[%s]', cardinality(seen)),
                'expected 1 to {tag_bytes_max} bytes, got an empty string');
        elsif octet_length(tag) > {tag_bytes_max} then
            perform convoke_refuse(as_json, format('tags[%s]', cardinality(seen)),
                format('expected at most {tag_bytes_max} bytes, got %s', octet_length(tag)));
        elsif tag ~ '[\u0001-\u001f\u007f-\u009f]' then
            perform convoke_refuse(as_json, format('tags[%s]', cardinality(seen)),
                'expected a tag without control characters, got one in it');
        elsif tag = any (seen) then
            perform convoke_refuse(as_json, format('tags[%s]', cardinality(seen)),
                format('expected each tag once, got %s again', to_json(tag)));
        end if;
        seen := seen || tag;
    end loop;
end
$$;

create or replace function convoke_read_tags(value jsonb) returns text[] language plpgsql as $$
begin
    if value is null or value = 'null' then
        return null;
    elsif jsonb_typeof(value) <> 'array' then
        perform convoke_refuse(true, 'tags', format('expected an array of strings, got %s', value));
    elsif exists (select 1 from jsonb_array_elements(value) tag where jsonb_typeof(tag) <> 'string') then
        perform convoke_refuse(true, 'tags', format('expected an array of strings, got %s', value));
    end if;
    return array(select jsonb_array_elements_text(value));
end
$$;

-- Checks a job, defines it and stores it.
create or replace function convoke_define(
    as_json boolean, type text, queue text, args jsonb, priority text, max_retries numeric, retry_policy jsonb,
    timeout_us bigint, correlation_id text, unique_key text, unique_us bigint, tags text[], id uuid, delay_us bigint,
    run_at timestamptz
) returns uuid language plpgsql as $$
#variable_conflict use_variable
declare
    levels    text[] := '{low,normal,high,critical}';
    now_us    bigint := extract(epoch from clock_timestamp()) * 1000000;
    run_at_us bigint;
    policy    text   := '{default_policy}';
    new       convoke_new_job;
    stored    uuid;
begin
    new.type := convoke_check_name(as_json, 'type', type);
    new.queue := convoke_check_name(as_json, 'queue', coalesce(queue, '{default_queue}'));
    new.priority := array_position(levels, coalesce(priority, 'normal')) - 1;
    if new.priority is null then
        perform convoke_refuse(as_json, 'priority',
            format('expected low, normal, high or critical, got %s', to_json(priority)));
    elsif delay_us is not null and run_at is not null then
        perform convoke_refuse(as_json, 'runAt',
            format('expected either delay or %s, got both', convoke_field(as_json, 'runAt')));
    elsif run_at is not null and (not isfinite(run_at) or run_at >= timestamptz '9999-12-30 22:00:01Z') then
        perform convoke_refuse(as_json, 'runAt',
            format('expected a time of 9999-12-30T22:00:00Z at the latest, got %s', run_at));
    elsif id in ('00000000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff') then
        perform convoke_refuse(as_json, 'id', format('expected a UUID other than the nil and the max UUID, got %s', id));
    end if;
    new.args := convoke_check_args(as_json, coalesce(args, 'null'));
    if max_retries <> trunc(max_retries) or max_retries not between 0 and {retries_max} then
        perform convoke_refuse(as_json, 'maxRetries', format('expected 0 to {retries_max}, got %s', trim_scale(max_retries)));
    end if;
    max_retries := trunc(coalesce(max_retries, {default_retries}));
    if retry_policy <> 'null' then
        policy := convoke_check_policy(as_json, retry_policy);
    end if;
    -- A document has whole milliseconds.
    if timeout_us < 1000 then
        perform convoke_refuse(as_json, 'timeout',
            'expected a duration longer than zero; leave it out for no timeout');
    end if;
    perform convoke_check_key(as_json, 'correlationId', correlation_id);
    perform convoke_check_key(as_json, 'uniqueKey', unique_key);
    if unique_us is not null and unique_key is null then
        perform convoke_refuse(as_json, 'uniqueFor',
            format('expected only together with %s', convoke_field(as_json, 'uniqueKey')));
    end if;
    perform convoke_check_tags(as_json, tags);
    run_at_us := case when delay_us > 0 then now_us + delay_us else extract(epoch from run_at) * 1000000 end;
    if run_at_us > now_us then
        new.run_at := run_at_us;
    end if;
    -- Options that have the built-in default are left out.
    new.document := '{"v":1,"type":' || to_json(type)
        || case when new.queue <> '{default_queue}' then ',"queue":' || to_json(new.queue) else '' end
        || case when new.priority <> {built_in_priority} then ',"priority":' || to_json(priority) else '' end
        || case when max_retries <> {built_in_retries} then ',"maxRetries":' || max_retries else '' end
        || case when policy <> '{built_in_policy}' then ',"retryPolicy":' || policy else '' end
        || case when timeout_us is not null then ',"timeout":' || to_json(convoke_write_duration(timeout_us)) else '' end
        || case when correlation_id is not null then ',"correlationId":' || to_json(correlation_id) else '' end
        || case when unique_key is not null then ',"uniqueKey":' || to_json(unique_key) else '' end
        || case when cardinality(tags) > 0 then ',"tags":' || array_to_json(tags) else '' end
        || '}';
    new.id := coalesce(id, convoke_new_id());
    new.keys := nullif(array_remove(
        ('{correlation_key}' || correlation_id) || array(select '{tag_key}' || tag from unnest(tags) tag), null), '{}');
    new.unique_key := unique_key;
    new.key_until := now_us + unique_us;
    new.created_at := now_us;
    select s.id into stored from convoke_store_job(new) s;
    return stored;
end
$$;

-- Enqueues a job inside the caller's transaction: it exists if and when that commits. Returns the job's id, or that of
-- the job which has its unique key or its id already. A coordinator finds it within a second.
--
--     select convoke_enqueue('email.send', '{"to": "a@b.c"}', queue => 'email', delay => interval '5 minutes');
create or replace function convoke_enqueue(
    type           text,
    args           jsonb       default '{}',
    queue          text        default '{default_queue}',
    priority       text        default 'normal',
    run_at         timestamptz default null,
    delay          interval    default null,
    max_retries    int         default null,
    timeout        interval    default null,
    correlation_id text        default null,
    unique_key     text        default null,
    unique_for     interval    default null,
    id             uuid        default null,
    retry_policy   jsonb       default null,
    tags           text[]      default null
) returns uuid
language plpgsql set search_path from current as $$
#variable_conflict use_variable
begin
    return convoke_define(
        false, type, queue, args, priority, max_retries, retry_policy, convoke_check_interval('timeout', timeout),
        correlation_id, unique_key, convoke_check_interval('uniqueFor', unique_for), tags, id,
        convoke_check_interval('delay', delay), run_at);
end
$$;

-- The same for a job in the form of POST /v1/jobs.
--
--     select convoke_enqueue('{"type": "email.send", "queue": "email", "delay": "5m", "args": {"to": "a@b.c"}}'::jsonb);
create or replace function convoke_enqueue(job jsonb) returns uuid
language plpgsql set search_path from current as $$
declare
    known   text[] := '{type,queue,args,priority,maxRetries,retryPolicy,timeout,correlationId,uniqueKey,uniqueFor,tags,id,delay,runAt}';
    unknown text;
begin
    if jsonb_typeof(job) is distinct from 'object' then
        raise exception 'expected an object, got %', job using errcode = 'invalid_parameter_value';
    elsif not job ? 'type' then
        raise exception 'missing field `type`' using errcode = 'invalid_parameter_value';
    end if;
    select key into unknown from jsonb_object_keys(job) key where key <> all (known) limit 1;
    if found then
        raise exception 'unknown field `%`', unknown using errcode = 'invalid_parameter_value';
    end if;
    if jsonb_typeof(job -> 'maxRetries') not in ('number', 'null') then
        perform convoke_refuse(true, 'maxRetries', format('expected 0 to {retries_max}, got %s', job -> 'maxRetries'));
    end if;
    return convoke_define(
        true, convoke_read_text('type', job -> 'type'), convoke_read_text('queue', job -> 'queue'), job -> 'args',
        convoke_read_text('priority', job -> 'priority'), (job ->> 'maxRetries')::numeric, job -> 'retryPolicy',
        convoke_read_duration(true, 'timeout', job -> 'timeout'),
        convoke_read_text('correlationId', job -> 'correlationId'), convoke_read_text('uniqueKey', job -> 'uniqueKey'),
        convoke_read_duration(true, 'uniqueFor', job -> 'uniqueFor'), convoke_read_tags(job -> 'tags'),
        convoke_read_id(job -> 'id'), convoke_read_duration(true, 'delay', job -> 'delay'), convoke_read_instant('runAt', job -> 'runAt'));
end
$$;
