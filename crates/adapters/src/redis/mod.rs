//! The ports on Redis: the bus of a cluster on Streams and pub/sub, leases, a shared
//! cache, and the link of a mesh.
//!
//! A process has a constant number of connections, whatever it reads: one for the commands of all ([`commands`]), one for all
//! that it listens to (`subscriptions`), and one more each for leases and a shared cache. None is ever blocked on. Those who wait are woken by bells,
//! which are pub/sub messages and may be lost; so they also look by themselves now and then, and whenever a connection was
//! made anew.
//!
//! What Redis loses (all that it holds, when it is started again without data; the last moments, when it fails over) is lost
//! to the bus: groups are made again, those who wait go on, and the store, which is the truth, is published again by
//! whoever reconciles. Redis 6.2 or later is needed; one master, with or without Sentinels, not Redis Cluster.

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
