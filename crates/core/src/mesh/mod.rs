//! Typed calls between the instances of an application: the rules.
//!
//! Each instance of a mesh has a number and a channel of its own. A call is a request on the channel of another and a reply
//! on one's own; between them the other sends heartbeats, so that a short timeout and a long handler go together. The
//! messages are those of an existing system, whose instances can be part of the same mesh ([`envelope`]).
//!
//! What is promised: a call ends once, with a reply, an error or its deadline ([`Calls`]); it is sent at most once; and
//! nothing that arrives on a channel does more harm than being counted.

mod calls;
pub mod envelope;
mod error;
mod fault;
mod floor;
mod instance;
mod registry;
mod trace;

pub use calls::{Calls, RequestId};
pub use envelope::{Envelope, Malformed};
pub use error::MeshError;
pub use fault::Fault;
pub use floor::EpochFloor;
pub use instance::{InstanceId, MeshNode};
pub use registry::Registry;
pub use trace::TraceParent;
