//! The memory adapters against the suites of all ports.
#![cfg(feature = "memory")]

mod store {
    use std::sync::Arc;

    use convoke_adapters::memory::MemoryStore;
    use convoke_core::ports::Store;
    use convoke_testkit::conformance::Subject;

    async fn fresh() -> Subject<dyn Store> {
        Subject::new(Arc::new(MemoryStore::new()))
    }

    convoke_testkit::store_conformance!(fresh);
}
