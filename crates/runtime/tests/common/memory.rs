//! The memory adapters as ports. The unit tests of the runtime use this file too: its sources name no adapter.

use std::sync::Arc;

use convoke_adapters::memory::{MemoryBus, MemoryLeases, MemoryStore, SystemChance, SystemClock};

use super::Ports;

pub fn ports() -> Ports {
    Ports {
        store: Arc::new(MemoryStore::default()),
        bus: Arc::new(MemoryBus::default()),
        leases: Arc::new(MemoryLeases::default()),
        cache: None,
        clock: Arc::new(SystemClock),
        chance: Arc::new(SystemChance),
    }
}
