//! One instance in a mesh: drives the rules of `convoke_core::mesh` over a link.
//!
//! What is heard is taken apart where it arrives (`inbox`): a reply ends its call, a heartbeat prolongs it, a request has
//! its handler started. A call needs no task of its own: its deadline is watched with all others (`deadlines`), and whoever
//! made it drives it (`calling`). A handler runs in a task of its own (`serving`), as many at once as the settings allow;
//! one more is refused by name. What we send gathers in the `outbox`. `membership` keeps us in the registry and, on the
//! instance that leads, sweeps it.
//!
//! When the link is away, calls fail by name or by their deadline; nothing is sent twice. When it is back, we are heard and
//! registered again. When the instance stops, its calls end, it leaves, and handlers have a while to finish.

mod calling;
mod context;
mod deadlines;
mod handlers;
mod inbox;
mod instance;
mod lease;
mod membership;
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
pub use settings::Settings;
pub use tracing_scope::{current_trace, in_trace};
