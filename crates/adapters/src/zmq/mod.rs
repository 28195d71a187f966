//! ZeroMQ: the ROUTER that the shard coordinator listens on, and the DEALER of one of its workers.
//!
//! Both run on threads of their own, one for all routers of the process and one for all dealers, so that a busy
//! application cannot delay the setup of a connection. Peers are not trusted: a peer that does not use ZMTP, takes too
//! long, sends too large frames or never reads is disconnected at a limit, counted if the library reports it, and does
//! not affect the others.
//!
//! A routing id belongs to the latest connection that uses it. A worker that reconnects before its old connection is
//! known to be dead is served at once; messages queued for the old one are lost, which the reply to the next heartbeat
//! repairs.

mod context;
mod dealer;
mod endpoint;
mod limits;
mod refusals;
mod router;
mod security;

pub use dealer::ZmqDealer;
pub use limits::ZmqLimits;
pub use router::ZmqRouter;
pub use security::{ZmqCredentials, ZmqKeys, ZmqSecurity};
