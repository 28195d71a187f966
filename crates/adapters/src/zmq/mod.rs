//! ZeroMQ: the ROUTER that the shard coordinator listens on, and the DEALER of one of its workers.
//!
//! Both run on threads of their own, one for all routers of the process and one for all dealers, so that a busy application
//! cannot keep a connection from being set up. Who connects is not trusted: what is no ZMTP, takes too long, comes in
//! pieces too large or never reads is cut off at a limit, counted where the library tells, and costs the others nothing.
//!
//! A routing id belongs to whoever brought it last. A worker that comes back before its old connection was noticed to be
//! dead is heard at once; what was queued for the old one is lost, which the next heartbeat's answer makes good.

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
