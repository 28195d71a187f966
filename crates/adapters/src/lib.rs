//! The ports of `convoke-core` on real engines: one module and one feature per engine. No module names another.

#![cfg_attr(not(test), warn(unused_crate_dependencies))]

#[cfg(feature = "gateway")]
pub mod gateway;
#[cfg(any(feature = "postgres", feature = "redis"))]
mod mailbox;
#[cfg(feature = "memory")]
pub mod memory;
#[cfg(feature = "postgres")]
pub mod postgres;
#[cfg(feature = "redis")]
pub mod redis;
#[cfg(any(feature = "memory", feature = "postgres", feature = "redis"))]
mod resignations;
#[cfg(feature = "s3")]
pub mod s3;
#[cfg(feature = "sqlite")]
pub mod sqlite;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod statement;
#[cfg(any(feature = "sqlite", feature = "postgres"))]
mod unreadable;
#[cfg(feature = "zmq")]
pub mod zmq;
