//! Shared parts of the tests of S3.
#![allow(dead_code, reason = "each test binary uses some of it")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use convoke_adapters::s3::S3Leases;
use convoke_core::ports::Clock;
use convoke_testkit::process::S3Server;
use jiff::{SignedDuration, Timestamp};

pub const PREFIX: &str = "some/prefix";
pub const STATE: &str = "some/prefix/plugin=coordinator/namespace=ns/state.json";
/// Longer than any test takes.
pub const LONG: Duration = Duration::from_secs(600);

/// A clock that is wrong by so much.
pub struct Skewed(pub SignedDuration);

impl Clock for Skewed {
    fn now(&self) -> Timestamp {
        Timestamp::now() + self.0
    }
}

pub async fn connect(server: &S3Server) -> S3Leases {
    connect_by(server, server.address(), SignedDuration::ZERO).await
}

/// Connects through a proxy, with a clock that is wrong.
pub async fn connect_by(server: &S3Server, address: SocketAddr, skew: SignedDuration) -> S3Leases {
    let variables = S3Server::variables_for(address);
    S3Leases::connect(&server.url(PREFIX), variables, Arc::new(Skewed(skew))).await.expect("connects")
}
