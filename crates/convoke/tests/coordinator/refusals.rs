//! Bad input is refused by its name, and nothing runs then.

use std::time::Duration;

use convoke::coordinator::{ListenError, Settings};
use convoke::{Coordinator, CoordinatorBuilder, Error, Unreachable};
use tokio::net::TcpListener;

fn memory() -> CoordinatorBuilder {
    Coordinator::builder().store("memory:")
}

async fn refusal(builder: CoordinatorBuilder) -> Error {
    builder.start().await.err().expect("refused")
}

#[tokio::test]
async fn a_wrong_value_is_refused_by_the_name_of_its_key() {
    let with = |change: fn(&mut Settings)| {
        let mut settings = Settings::default();
        change(&mut settings);
        memory().settings(settings)
    };
    let role = convoke::coordinator::Role::Read;
    let cases = [
        (memory().store("mysql://db"), "store.url: expected postgres://…"),
        (memory().bus("kafka://bus"), "bus.url: expected redis://…"),
        (memory().bus("kafka://bus").settings(Settings::default()), "bus.url: expected redis://…"),
        (with(|it| it.bus.url = Some("kafka://bus".into())), "bus.url: expected redis://…"),
        (memory().leases("memory"), "leases.url: expected "),
        (memory().node_id(""), "node.id: expected a name"),
        (memory().bus_prefix("a b"), "bus.prefix: expected a word without spaces"),
        (memory().http("3000"), "http.bind: expected \"host:port\""),
        (memory().tokens([("a b", role)]), "http.tokens[0].token: expected printable ASCII"),
        (memory().hosts(["a:80"]), "http.hosts[0]: expected a host name without a port"),
        (with(|it| it.cluster.heartbeat_interval = Duration::ZERO), "cluster.heartbeat_interval: expected a duration"),
        (
            with(|it| it.cluster.handoff_ack_timeout = Duration::ZERO),
            "cluster.handoff_ack_timeout: expected a duration",
        ),
        (with(|it| it.cluster.rebalance_ratio = 1.0), "cluster.rebalance_ratio: expected a number above 1, got 1"),
        (with(|it| it.retry.max_retries = u32::MAX), "retry.max_retries: expected 0 to "),
        (with(|it| it.retry.multiplier = 0.5), "retry.multiplier: expected a number from 1 to 1000, got 0.5"),
        (with(|it| it.election.metrics_buffer_size = 0), "election.metrics_buffer_size: expected 1 to "),
    ];
    for (builder, expected) in cases {
        let refused = refusal(builder).await;
        assert!(matches!(refused, Error::Coordinator(convoke_core::Error::Invalid(_))), "{refused}");
        assert!(refused.to_string().starts_with(expected), "{refused}, not {expected}");
    }
}

#[cfg(feature = "zmq")]
#[tokio::test]
async fn a_wrong_address_for_shards_is_refused_by_name() {
    let refused = refusal(memory().shards("127.0.0.1:5555")).await;
    assert!(refused.to_string().starts_with("shards.bind: expected \"tcp://host:port\""), "{refused}");
}

#[tokio::test]
async fn an_address_that_is_taken_or_open_to_others_is_refused() {
    let taken = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let bind = taken.local_addr().expect("an address").to_string();
    let refused = refusal(memory().http(&bind)).await;
    assert!(matches!(&refused, Error::Listen(ListenError::InUse { .. })), "{refused}");
    assert!(refused.to_string().starts_with(&format!("{bind} is in use")), "{refused}");

    let refused = refusal(memory().http("0.0.0.0:0")).await;
    assert!(matches!(&refused, Error::Listen(ListenError::NoTokens { .. })), "{refused}");
    let allowed = memory().http("0.0.0.0:0").insecure(true).start().await.expect("it was allowed");
    allowed.drain().await.expect("it is clean");
}

#[tokio::test]
async fn a_backend_that_is_away_is_named_with_its_setting() {
    let free = std::net::TcpListener::bind("127.0.0.1:0").expect("bound").local_addr().expect("an address");
    let refused = refusal(memory().bus(format!("redis://ann:secret@{free}"))).await;
    let Error::Coordinator(error) = &refused else { panic!("{refused}") };
    let unreachable = Unreachable::of(error).expect("it is away");
    assert_eq!(unreachable.setting(), "bus.url");
    assert!(!unreachable.to_string().contains("secret"), "{unreachable}");
}
