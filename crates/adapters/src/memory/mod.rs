//! Every port in one process's memory: the reference that the conformance suites were written against.
//!
//! The bus is also what the embedded coordinator runs on, and is made to be fast; the store is made to be obvious. Nothing
//! here survives the process, and nothing here fails: what answers an error was asked something it must refuse.

mod bus;
mod cache;
mod clock;
mod leases;
mod mesh;
mod router;
mod store;

pub use bus::MemoryBus;
pub use cache::MemoryCache;
pub use clock::{SettableClock, SystemClock};
pub use leases::MemoryLeases;
pub use mesh::MemoryMesh;
pub use router::{MemoryBinding, MemoryRouting};
pub use store::MemoryStore;
