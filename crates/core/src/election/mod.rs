//! Leader election with numbered terms.
//!
//! Members enroll and send heartbeats. If there is no leader, the [`Policy`] decides which members stand, and the
//! backend grants the leadership to one of them for a term whose number only rises. The pure [`Elector`] decides what
//! to request of the backend and what its replies mean; time is an argument. A leader that cannot renew its lease
//! fences itself before another member can get it.

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

#[cfg(feature = "node")]
pub use crate::ports::store::Fence;
