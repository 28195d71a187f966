-- The queues of the bus. Everything on a bus is a hint that the store can give again, so the tables are not logged: a
-- crash of the server empties them, and a standby has them empty.

-- Logged and in one piece, so that an id from before a crash is not given to a later entry.
create sequence convoke_bus_ids cache 1;

-- An entry of a queue. Its first delivery makes it that group's, and adds a copy for every other group of the queue:
-- with one group, as on every queue of a coordinator, a row is inserted, updated in place and deleted.
create unlogged table convoke_bus_entries (
    queue      text   collate "C" not null,
    id         bigint not null default nextval('convoke_bus_ids'),
    -- The group that this copy waits for; empty: an entry that no group has received.
    copy_for   text   collate "C" not null default '',
    body       bytea  not null,
    -- The member that it was delivered to last.
    group_name text   collate "C",
    member     text   collate "C",
    taken_at   timestamptz,
    deliveries int    not null default 0,
    primary key (queue, id, copy_for)
) with (fillfactor = 60, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 5000);
-- Compressing costs more time than the bytes that it saves: an entry is read once, soon.
alter table convoke_bus_entries alter column body set storage external;

create unlogged table convoke_bus_groups (
    queue text collate "C" not null,
    name  text collate "C" not null,
    primary key (queue, name)
);

create unlogged table convoke_bus_members (
    queue      text    collate "C" not null,
    group_name text    collate "C" not null,
    name       text    collate "C" not null,
    read_at    timestamptz not null,
    -- It has left, and is listed only as long as something is pending for it.
    has_left   boolean not null default false,
    primary key (queue, group_name, name)
) with (fillfactor = 30, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000);
