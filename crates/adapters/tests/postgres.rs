//! The PostgreSQL adapters against the suites of their ports.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use convoke_adapters::postgres::{PostgresLeases, PostgresStore};
use convoke_core::ports::{Leases, Store};
use convoke_testkit::conformance::Subject;
use convoke_testkit::process::SharedPostgres;

mod store {
    use super::*;

    async fn fresh() -> Subject<dyn Store> {
        let url = SharedPostgres::get().create_database();
        Subject::new(Arc::new(PostgresStore::connect(&url).await.expect("connects")))
    }

    convoke_testkit::store_conformance!(fresh);
}

mod leases {
    use super::*;

    async fn fresh() -> Subject<dyn Leases> {
        let url = SharedPostgres::get().create_database();
        Subject::new(Arc::new(PostgresLeases::connect(&url).await.expect("connects")))
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}

mod leases_of_a_store {
    use super::*;

    /// In a schema of its own, beside what else the database holds.
    async fn fresh() -> Subject<dyn Leases> {
        let url = SharedPostgres::get().create_database();
        let store = PostgresStore::connect(&format!("{url}&schema=some%20jobs")).await.expect("connects");
        Subject::keeping(Arc::new(store.leases()), store)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}
