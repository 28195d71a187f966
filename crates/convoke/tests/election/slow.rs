//! A backend that is slow, at the default settings: heartbeats are cut off one by one before the threshold, and what was cut off counts
//! with the next one.

use std::sync::Arc;
use std::time::Duration;

use convoke::election::{ElectionEvent, Settings};
use convoke::{Elector, connect};
use convoke_adapters::s3::S3Leases;
use convoke_core::ports::Leases;
use convoke_testkit::process::{Fault, HttpProxy, Proxy, RedisServer, S3Server, eventually};

/// How much later each response arrives: a leader waits for its renewal so long, and for nothing else in the same heartbeat.
const DELAY: Duration = Duration::from_millis(3_500);
const PATIENCE: Duration = Duration::from_secs(50);

/// Waits until an elector leads, has `slow` slow its backend down, and waits for the event.
async fn is_contended(backend: &str, leases: Arc<dyn Leases>, slow: impl FnOnce()) {
    let defaults = Settings::default();
    let elector = Elector::over(leases).settings(defaults.clone()).start().await.expect("starts");
    let mut events = elector.events();
    eventually("that it leads", || async { elector.is_leader().then_some(()) }).await;
    slow();
    let detected = async {
        loop {
            let event = events.next().await.expect("it runs");
            if let ElectionEvent::ContentionDetected(contention) = &event.what {
                break *contention;
            }
        }
    };
    let contention = tokio::time::timeout(PATIENCE, detected).await;
    let contention = contention.unwrap_or_else(|_| panic!("no contention:detected on a slow {backend}"));
    assert_eq!((contention.expected, contention.threshold), (defaults.heartbeat_interval, 2.0), "{backend}");
    assert!(contention.ratio > 2.0 && contention.duration > defaults.heartbeat_interval * 2, "{contention:?}");
}

#[tokio::test]
async fn a_slow_s3_and_a_slow_redis_are_contention_at_the_default_settings() {
    let (s3, redis) = tokio::join!(S3Server::start(), RedisServer::start());
    let on_s3 = async {
        let proxy = HttpProxy::start(s3.address()).await;
        let variables = S3Server::variables_for(proxy.address());
        let leases = S3Leases::connect(&s3.url("slow"), variables, connect::clock()).await.expect("connects");
        is_contended("S3", Arc::new(leases), || proxy.rule(|_| Fault::Slow(DELAY))).await;
    };
    let on_redis = async {
        let proxy = Proxy::start((std::net::Ipv4Addr::LOCALHOST, redis.port()).into()).await;
        let leases = connect::leases(&format!("redis://{}", proxy.address()), "slow").await.expect("connects");
        is_contended("Redis", leases, || proxy.slow(DELAY)).await;
    };
    tokio::join!(on_s3, on_redis);
}
