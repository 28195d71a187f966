//! One instance in a mesh: drives the rules of `convoke_core::mesh` over a link.
//!
//! Received messages are decoded where they arrive (`inbox`): a reply ends its call, a heartbeat extends it, a request
//! starts its handler. A call needs no task of its own: one timer watches all deadlines (`deadlines`), and the caller
//! drives the call (`calling`). A handler runs in a task of its own (`serving`), as many at once as the settings allow;
//! further requests are rejected with an error of their own. Messages to send gather in the `outbox`. `membership`
//! keeps this instance in the registry and, if it leads, removes dead ones.
//!
//! While the link is unavailable, calls fail with an error of their own or by their deadline; nothing is sent twice.
//! When it is available again, the instance receives messages and is registered again. When the instance stops, its
//! calls end, it leaves, and handlers have a grace period to finish.

mod calling;
mod context;
mod deadlines;
mod handlers;
mod inbox;
mod instance;
mod lease;
mod membership;
mod meshes;
mod outbox;
mod serving;
mod session;
mod settings;
pub mod telemetry;
mod tracing_scope;

pub use calling::{CallOptions, check_type};
pub use context::Context;
pub use handlers::{BroadcastFuture, Demand, HandlerFuture, Handlers};
pub use instance::Instance;
pub use meshes::{Meshes, OpenMesh, OpeningMesh};
pub use settings::Settings;
pub use tracing_scope::{current_trace, in_trace};
