//! The SQLite adapters against the suites of their ports.
#![cfg(feature = "sqlite")]

use std::sync::Arc;

use convoke_adapters::sqlite::{SqliteLeases, SqliteStore};
use convoke_core::ports::{Leases, Store};
use convoke_testkit::conformance::Subject;

mod store {
    use super::*;

    async fn fresh() -> Subject<dyn Store> {
        let directory = tempfile::tempdir().expect("a directory");
        let store = SqliteStore::open(directory.path().join("convoke.db")).expect("opens");
        Subject::keeping(Arc::new(store), directory)
    }

    convoke_testkit::store_conformance!(fresh);
}

mod leases {
    use super::*;

    async fn fresh() -> Subject<dyn Leases> {
        let directory = tempfile::tempdir().expect("a directory");
        let leases = SqliteLeases::open(directory.path().join("leases.db")).expect("opens");
        Subject::keeping(Arc::new(leases), directory)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}

mod leases_of_a_store {
    use super::*;

    async fn fresh() -> Subject<dyn Leases> {
        let directory = tempfile::tempdir().expect("a directory");
        let store = SqliteStore::open(directory.path().join("convoke.db")).expect("opens");
        Subject::keeping(Arc::new(store.leases()), directory)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}
