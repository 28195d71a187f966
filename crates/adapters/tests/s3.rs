//! Leases on S3 against the suite of their port, on a real server, and what of them others can see.
#![cfg(feature = "s3")]

mod s3_stage;

use std::sync::Arc;

use convoke_core::ports::Leases;
use convoke_testkit::conformance::Subject;
use convoke_testkit::process::S3Server;

mod leases {
    use super::*;

    async fn fresh() -> Subject<dyn Leases> {
        let server = S3Server::start().await;
        let leases = s3_stage::connect(&server).await;
        Subject::keeping(Arc::new(leases), server)
    }

    convoke_testkit::leases_conformance!(fresh, tokio::time::sleep);
}
