//! Typed calls between the instances of an application: the rules.
//!
//! Each instance of a mesh has a number and a channel. A call is a request on the channel of the called instance and a
//! reply on the caller's channel. Until the reply, the called instance sends heartbeats, so that a short timeout works
//! with a long handler. The messages are those of an existing system, whose instances can be part of the same mesh
//! ([`envelope`]).
//!
//! Promises: a call ends once, with a reply, an error or its deadline ([`Calls`]); it is sent at most once; a malformed
//! message is only counted.

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
pub use instance::{InstanceId, MeshFigures, MeshNode};
pub use registry::Registry;
pub use trace::TraceParent;
