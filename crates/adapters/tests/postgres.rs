//! The PostgreSQL adapters against the suites of their ports.
#![cfg(feature = "postgres")]

use std::sync::Arc;

use convoke_adapters::postgres::{PostgresBus, PostgresLeases, PostgresStore};
use convoke_core::ports::{Bus, Leases, Store};
use convoke_testkit::conformance::Subject;
use convoke_testkit::conformance::leases::Clients;
use convoke_testkit::process::SharedPostgres;

async fn connect(url: &str) -> Arc<dyn Leases> {
    Arc::new(PostgresLeases::connect(url).await.expect("connects"))
}

mod store {
    use super::*;

    async fn fresh() -> Subject<dyn Store> {
        let url = SharedPostgres::get().create_database_like("of_stores", |url| async move {
            PostgresStore::connect(&url).await.expect("connects");
        });
        Subject::new(Arc::new(PostgresStore::connect(&url).await.expect("connects")))
    }

    convoke_testkit::store_conformance!(fresh);
}

mod leases {
    use super::*;

    async fn fresh(count: usize) -> Clients {
        let url = SharedPostgres::get().create_database_like("of_leases", |url| async move {
            connect(&url).await;
        });
        let mut clients = Vec::new();
        for _ in 0..count {
            clients.push(connect(&url).await);
        }
        Subject::new(clients.into())
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::sleep);
}

mod leases_of_a_store {
    use super::*;

    /// In a schema of its own, beside other contents of the database. One client uses the store's connections, the
    /// others their own.
    async fn fresh(count: usize) -> Clients {
        let with_schema = |url| format!("{url}&schema=some%20jobs");
        let url = SharedPostgres::get().create_database_like("of_schemas", |url| async move {
            PostgresStore::connect(&with_schema(url)).await.expect("connects");
        });
        let url = with_schema(url);
        let store = PostgresStore::connect(&url).await.expect("connects");
        let mut clients: Vec<Arc<dyn Leases>> = vec![Arc::new(store.leases())];
        for _ in 1..count {
            clients.push(connect(&url).await);
        }
        Subject::keeping(clients.into(), store)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
    convoke_testkit::resignations_conformance!(fresh, tokio::time::sleep);
}

mod bus {
    use super::*;

    async fn fresh() -> Subject<dyn Bus> {
        let url = SharedPostgres::get().create_database_like("of_buses", |url| async move {
            PostgresBus::connect("bus.url", &url, "convoke").await.expect("connects");
        });
        Subject::new(Arc::new(PostgresBus::connect("bus.url", &url, "convoke").await.expect("connects")))
    }

    convoke_testkit::bus_conformance!(fresh, tokio::time::sleep);
}
