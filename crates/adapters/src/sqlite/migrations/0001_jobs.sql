-- Instants and durations are microseconds, those of leases milliseconds. Codes are those of the core's enums.

create table cluster (
    id     integer primary key check (id = 1),
    sealed integer not null
);
insert into cluster (id, sealed) values (1, 0);

-- A queue with the number of its jobs in each state: one row to rewrite for a whole group of changes.
create table queues (
    id          integer primary key,
    name        text    not null unique,
    paused      integer not null default 0,
    rate_limit  integer,
    rate_per    integer,
    concurrency integer,
    pending     integer not null default 0,
    scheduled   integer not null default 0,
    dispatched  integer not null default 0,
    running     integer not null default 0,
    completed   integer not null default 0,
    failed      integer not null default 0,
    timed_out   integer not null default 0,
    cancelled   integer not null default 0
);

create table grants (
    queue_id integer not null,
    at       integer not null,
    count    integer not null
);
create index grants_by_time on grants (queue_id, at);

create table types (
    id   integer primary key,
    name text not null unique
);

-- A job and its present run: columns for values by which statements decide, the rest in `document`. `seq` is the order
-- in which jobs were stored. Columns that a run rewrites come first, so that reading them does not walk over the
-- arguments.
create table jobs (
    seq              integer primary key,
    id               blob    not null,
    execution_id     blob,
    state            integer not null,
    queue_id         integer not null,
    type_id          integer not null,
    -- The order of dispatch: the due time minus the head start of the priority.
    rank             integer not null,
    due_at           integer not null,
    attempt          integer not null default 0,
    -- The attempt at which it was last redriven: the budget of retries counts from there.
    attempt_base     integer not null default 0,
    -- The number of its runs in `executions`.
    superseded       integer not null default 0,
    by_channel       integer not null default 0,
    channels_cleaned integer not null default 0,
    -- The end of its present run, if the job's state does not imply it: a lost run of a failed job.
    run_end          integer,
    dispatched_at    integer,
    started_at       integer,
    completed_at     integer,
    deadline         integer,
    worker           text,
    owner            text,
    ownership        integer not null default {unowned},
    progress         integer,
    progress_message text,
    log_seq          integer not null default 0,
    -- Of its present run: number of the next log line (lower ones are recorded), and how many are.
    run_log_next     integer not null default 0,
    run_log_kept     integer not null default 0,
    created_at       integer not null,
    scheduled_at     integer,
    unique_key       text,
    schedule         text,
    -- Its rows of `job_keys`, as a JSON array.
    keys             text,
    document         text    not null,
    error            text,
    result           text,
    args             text    not null
);
create unique index jobs_id on jobs (id);
-- Ends in `seq`, as every index: the order of storing among equals.
create index jobs_pending on jobs (queue_id, rank) where state = {pending};
create index jobs_scheduled on jobs (due_at) where state = {scheduled};
-- Every run in flight, by its owner; those that lack a worker come before those that have one.
create index jobs_in_flight on jobs (owner, worker is not null, id) where state in ({in_flight});
create index jobs_of_worker on jobs (worker, id) where state in ({in_flight}) and worker is not null;
create index jobs_moving on jobs (id) where state in ({in_flight}) and ownership in ({handing_off}, {orphan_pending});
create index jobs_deadline on jobs (deadline) where deadline is not null;
-- Lists, newest first.
create index jobs_of_queue on jobs (queue_id);
create index jobs_of_type on jobs (type_id);
create index jobs_finished on jobs (state, queue_id) where state >= {first_ended};
-- A finished job is in one of these two.
create index jobs_uncleaned on jobs (completed_at) where state >= {first_ended} and channels_cleaned = 0;
create index jobs_cleaned on jobs (state, completed_at) where state >= {first_ended} and channels_cleaned = 1;
create unique index jobs_tick on jobs (schedule, scheduled_at) where schedule is not null;
create index jobs_live_of_schedule on jobs (schedule) where schedule is not null and state < {first_ended};

-- Search keys of jobs that have any. Lists with a filter walk down from a key.
create table job_keys (
    key text    not null,
    seq integer not null,
    primary key (key, seq)
) without rowid;

-- Runs that another has superseded; the present one is in `jobs`.
create table executions (
    job          integer not null,
    number       integer not null,
    execution_id blob    not null,
    attempt      integer not null,
    status       integer not null,
    worker       text,
    started_at   integer,
    ended_at     integer,
    error        text,
    primary key (job, number)
) without rowid;

create table logs (
    job          integer not null,
    seq          integer not null,
    at           integer not null,
    level        integer not null,
    execution_id blob    not null,
    message      text    not null,
    primary key (job, seq)
) without rowid;

create table unique_keys (
    key    text primary key,
    job_id blob not null,
    until  integer
) without rowid;
create index unique_keys_until on unique_keys (until) where until is not null;

create table schedules (
    name        text primary key,
    next_run_at integer,
    last_run_at integer,
    paused      integer not null,
    document    text    not null
) without rowid;
create index schedules_due on schedules (next_run_at) where next_run_at is not null and paused = 0;

create table workers (
    id       text primary key,
    document text not null
) without rowid;

create table nodes (
    id       text primary key,
    document text not null
) without rowid;

-- Workers that may hold shards: from before their first grant until they left or were declared dead.
create table shard_roster (
    service text not null,
    worker  text not null,
    primary key (service, worker)
) without rowid;

-- The acts of operators. Rows are inserted and expire, and are never updated. The number of a deleted row is not used again.
create table audit (
    seq      integer primary key autoincrement,
    at       integer not null,
    via      integer not null,
    who      text    not null,
    action   text    not null,
    target   text    not null,
    node     text    not null,
    -- The target before and after, as JSON.
    before   text,
    after    text
);
create index audit_by_time on audit (at, seq);
create index audit_of_who on audit (who, seq);
create index audit_of_action on audit (action, seq);
create index audit_of_target on audit (target, seq);

-- Values that all nodes share, such as the key that signs sessions.
create table shared_values (
    name  text primary key,
    value blob not null
) without rowid;

-- An expired or resigned lease stays, so that its epoch is never issued again.
create table leases (
    namespace  text primary key,
    holder     text    not null,
    epoch      integer not null,
    expires_at integer not null,
    -- The leader's published report, as JSON.
    report     text
) without rowid;

create table members (
    namespace  text    not null,
    member     text    not null,
    expires_at integer not null,
    primary key (namespace, member)
) without rowid;
