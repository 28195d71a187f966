//! Every port in one process's memory: the reference of the conformance suites.
//!
//! The embedded coordinator runs on this bus, so it is made to be fast; the store is made to be obvious. Nothing here
//! survives the process, and nothing here fails: an error is always a rejection.

mod bus;
mod cache;
mod chance;
mod clock;
mod leases;
mod mesh;
mod router;
#[cfg(feature = "node")]
mod store;

pub use bus::MemoryBus;
pub use cache::MemoryCache;
pub use chance::{SeededChance, SystemChance};
pub use clock::{SettableClock, SystemClock};
pub use leases::MemoryLeases;
pub use mesh::MemoryMesh;
pub use router::{MemoryBinding, MemoryRouting};
#[cfg(feature = "node")]
pub use store::{Kept, MemoryStore};
