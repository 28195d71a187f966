//! A real cluster from outside: three coordinators, four workers, a real Redis and a real PostgreSQL, and one fault after the
//! other while work goes on.
//!
//! Every scenario runs under the same [traffic](traffic) of jobs that complete, fail, retry, time out, are cancelled, log and
//! report progress, beside a schedule that ticks, and ends with the same [verdict](verdict): what was acknowledged has ended,
//! once; nobody owned what another did; epochs only rose; no tick is missing or doubled; nothing is left on the bus. A file
//! is a fault; [several] makes some of them in a row.

mod all_down;
mod channels_closed;
mod checker;
mod clocks_apart;
mod clocks_apart_runs;
mod drain_without_detector;
mod everyone_owns;
mod follower_killed;
mod foreign_worker;
mod handoff_acks;
mod health_flood;
mod leader_killed;
mod leader_paused;
mod log_lines;
mod many_owned;
mod node_drained;
mod on_postgres_alone;
mod parted_from_postgres;
mod parted_from_redis;
mod past;
mod postgres_restarted;
mod rate_limit;
mod redis_emptied;
mod run_again;
mod several;
mod shards_view;
mod stage;
mod traffic;
mod verdict;
mod what_is_shown;
mod worker_killed;
