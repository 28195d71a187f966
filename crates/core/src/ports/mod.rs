//! The ports: the traits that engines implement. Small, `dyn`-safe, batch-first, fenced.

pub mod bus;
pub mod cache;
pub mod chance;
pub mod clock;
pub mod leases;
pub mod mesh;
pub mod router;
#[cfg(feature = "node")]
pub mod store;

pub use bus::{Bus, Consumer, Delivery, Entry, GroupReader, Message, Multiplex, QueueEnd, QueueReaders, Subscription};
pub use cache::SharedCache;
pub use chance::{Chance, RisingIds};
pub use clock::Clock;
pub use leases::{Leases, Resignations};
pub use mesh::{Membership, MeshInbox, MeshLink};
pub use router::{Dealer, DealerConnecting, Router, RouterBinding};
#[cfg(feature = "node")]
pub use store::Store;
