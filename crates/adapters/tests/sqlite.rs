//! The SQLite adapters against the suites of their ports.
#![cfg(feature = "sqlite")]

use std::path::Path;
use std::sync::Arc;

use convoke_adapters::sqlite::{SqliteLeases, SqliteStore};
use convoke_core::ports::{Leases, Store};
use convoke_testkit::conformance::Subject;
use convoke_testkit::conformance::leases::Clients;

fn open(path: &Path) -> Arc<dyn Leases> {
    Arc::new(SqliteLeases::open(path).expect("opens"))
}

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

    async fn fresh(count: usize) -> Clients {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("leases.db");
        let clients = (0..count).map(|_| open(&path)).collect();
        Subject::keeping(clients, directory)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::sleep);
}

mod leases_of_a_store {
    use super::*;

    /// One client uses the store, of which there is one; the others use its file, as other processes would.
    async fn fresh(count: usize) -> Clients {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("convoke.db");
        let store = SqliteStore::open(&path).expect("opens");
        let first: Arc<dyn Leases> = Arc::new(store.leases());
        let clients = std::iter::once(first).chain((1..count).map(|_| open(&path))).collect();
        Subject::keeping(clients, directory)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::sleep);
}
