//! Who leads, for which numbered term.
//!
//! Members enrol and beat; where nobody leads, the [`Policy`] says who stands, and the backend gives the place to one of
//! them for a term with a number that only rises. The pure [`Elector`] decides what to ask of the backend and what its
//! answers mean; it is told the time and does nothing by itself. A leader that cannot renew its lease fences itself
//! before the lease may be another's.

mod breaker;
mod conduct;
mod contention;
mod elector;
mod event;
mod gate;
mod latency;
mod moment;
mod policy;
mod report;
mod roster;
mod settings;
mod stats;

pub use breaker::{BreakerState, BreakerStatus, CircuitBreaker};
pub use conduct::Conduct;
pub use contention::{Contention, ContentionWatch};
pub use elector::{Ask, Elector, Held, Reply, Round, certain_for};
pub use event::{ElectionEvent, Event};
pub use gate::EpochGate;
pub use latency::{LatencyWindow, Percentiles};
pub use moment::Moment;
pub use policy::Policy;
pub use report::Report;
pub use roster::{Roster, Turnover};
pub use settings::{BreakerSettings, ContentionSettings, Settings};
pub use stats::{ElectionStats, HeartbeatOutcome, Metrics, Now};

pub use crate::ports::store::Fence;
