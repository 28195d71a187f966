//! The Redis adapters against the suites of their ports, and against what can happen to a real server.
#![cfg(feature = "redis")]

use std::sync::Arc;

use convoke_adapters::redis::{RedisBus, RedisLeases};
use convoke_core::jobs::channels::Channels;
use convoke_core::ports::{Bus, Leases};
use convoke_testkit::conformance::Subject;
use convoke_testkit::process::RedisServer;

mod bus {
    use super::*;

    async fn fresh() -> Subject<dyn Bus> {
        let server = RedisServer::start().await;
        let bus = RedisBus::connect(&server.url(), Channels::new("convoke")).await.expect("connects");
        Subject::keeping(Arc::new(bus), server)
    }

    convoke_testkit::bus_conformance!(fresh, tokio::time::sleep);
}

mod leases {
    use super::*;

    async fn fresh() -> Subject<dyn Leases> {
        let server = RedisServer::start().await;
        let leases = RedisLeases::connect(&server.url(), "convoke").await.expect("connects");
        Subject::keeping(Arc::new(leases), server)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}
