//! The ports on Redis: the bus of a cluster on Streams and pub/sub, leases, a shared cache, and the link of a mesh.
//!
//! A process has a constant number of connections, whatever it reads: one for all commands (`commands`), one for all
//! subscriptions (`subscriptions`), and one more each for leases and a shared cache. No command blocks its connection.
//! Waiting readers are woken by bells, which are pub/sub messages and may be lost; so they also poll from time to time,
//! and after every reconnect.
//!
//! Data that Redis loses (everything, if it restarts without data; the last moments, in a failover) is lost to the bus:
//! groups are created again, readers continue to wait, and the reconcilers publish again from the store, which is the
//! truth. Redis 6.2 or later is required; one master, with or without Sentinels, not Redis Cluster.

mod abort_on_drop;
mod address;
mod bus;
mod cache;
mod commands;
mod consumer;
mod dial;
mod entry;
mod failure;
mod leases;
mod member;
mod mesh;
mod multiplex;
mod push;
mod readers;
mod script;
mod sizing;
mod subscription_hub;
mod topics;
mod wait_slot;

pub use address::shown;
pub use bus::RedisBus;
pub use cache::RedisCache;
pub use leases::RedisLeases;
pub use mesh::RedisMesh;
