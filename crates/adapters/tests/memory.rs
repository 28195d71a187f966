//! The memory adapters against the suites of all ports.
#![cfg(feature = "memory")]

use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::memory::{
    MemoryBus, MemoryCache, MemoryLeases, MemoryMesh, MemoryStore, SettableClock, SystemClock,
};
use convoke_core::ports::{Bus, Clock, Leases, MeshLink, SharedCache, Store};
use convoke_testkit::conformance::Subject;
use convoke_testkit::conformance::leases::Clients;

mod store {
    use super::*;

    async fn fresh() -> Subject<dyn Store> {
        Subject::new(Arc::new(MemoryStore::new()))
    }

    convoke_testkit::store_conformance!(fresh);
}

mod bus {
    use super::*;

    async fn fresh() -> Subject<dyn Bus> {
        tokio::time::pause();
        Subject::new(Arc::new(MemoryBus::new()))
    }

    convoke_testkit::bus_conformance!(fresh, tokio::time::advance);
}

mod cache {
    use super::*;

    async fn fresh() -> Subject<dyn SharedCache> {
        tokio::time::pause();
        Subject::new(Arc::new(MemoryCache::default()))
    }

    convoke_testkit::cache_conformance!(fresh, tokio::time::advance);
}

mod leases {
    use super::*;

    /// In memory the adapter is the backend: all clients share one.
    async fn fresh(count: usize) -> Clients {
        tokio::time::pause();
        let leases: Arc<dyn Leases> = Arc::new(MemoryLeases::new());
        Subject::new(vec![leases; count].into())
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::advance);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::advance);
}

mod mesh {
    use super::*;

    async fn fresh() -> Subject<dyn MeshLink> {
        tokio::time::pause();
        Subject::new(Arc::new(MemoryMesh::new()))
    }

    convoke_testkit::mesh_conformance!(fresh, tokio::time::advance);
}

mod system_clock {
    use super::*;

    async fn fresh() -> Subject<SystemClock> {
        Subject::new(Arc::new(SystemClock))
    }

    convoke_testkit::clock_conformance!(fresh, async |_: &SystemClock, time: Duration| tokio::time::sleep(time).await);
}

mod settable_clock {
    use super::*;

    async fn fresh() -> Subject<SettableClock> {
        Subject::new(Arc::new(SettableClock::new(jiff::Timestamp::now())))
    }

    convoke_testkit::clock_conformance!(fresh, async |clock: &SettableClock, time: Duration| clock.advance(time));

    #[test]
    fn it_can_be_set_back_and_stops_at_the_end_of_time() {
        let clock = SettableClock::new(jiff::Timestamp::UNIX_EPOCH);
        clock.advance(Duration::from_secs(5));
        clock.set(jiff::Timestamp::UNIX_EPOCH);
        assert_eq!(clock.now(), jiff::Timestamp::UNIX_EPOCH);
        clock.advance(Duration::MAX);
        assert_eq!(clock.now(), jiff::Timestamp::MAX);
    }
}
