//! A worker's socket: it connects to its coordinator, also later and again, and sends its last message.

use bytes::Bytes;
use convoke_adapters::zmq::{ZmqDealer, ZmqLimits, ZmqRouter};
use convoke_core::error::Error;
use convoke_core::ports::router::{DealerConnecting, RouterBinding};

use super::stage::{bind, connect, nowhere, receive, reply, within};

#[tokio::test]
async fn what_a_dealer_says_before_its_coordinator_is_there_arrives_later() {
    let address = nowhere();
    let mut dealer = ZmqDealer::new().connect(&address).await.expect("an address");
    dealer.send(Bytes::from_static(b"early")).await.expect("room");
    let mut router = ZmqRouter::new(&address).expect("an address").bind().await.expect("a free port");
    assert_eq!(receive(&mut *router).await.frames, [Bytes::from_static(b"early")]);
}

#[tokio::test]
async fn a_dealer_finds_the_coordinator_that_took_over() {
    let mut router = bind().await;
    let address = router.address().to_owned();
    let mut dealer = connect(&*router).await;
    for term in 0..3 {
        dealer.send(Bytes::from(format!("term {term}"))).await.expect("room");
        // A message that was lost with the last coordinator is sent again, as a worker's heartbeat is.
        let received = loop {
            tokio::select! {
                received = receive(&mut *router) => break received,
                () = tokio::time::sleep(std::time::Duration::from_millis(200)) => {
                    let _ = dealer.send(Bytes::from(format!("term {term}"))).await;
                }
            }
        };
        reply(&mut *router, &received.from, "welcome").await;
        assert_eq!(within("the reply", dealer.receive()).await.expect("a message"), [Bytes::from_static(b"welcome")]);
        drop(router);
        router = ZmqRouter::new(&address).expect("an address").bind().await.expect("a free port");
    }
}

#[tokio::test]
async fn more_than_may_wait_is_refused_and_not_kept() {
    let address = nowhere();
    let limits = ZmqLimits { peer_queue_max: 8, ..ZmqLimits::default() };
    let mut dealer = ZmqDealer::new().limits(limits).connect(&address).await.expect("an address");
    let mut kept = 0;
    let error = loop {
        match dealer.send(Bytes::from_static(b"again")).await {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 1000, "nothing bounds what waits");
    };
    assert!(matches!(error, Error::Unavailable { .. }), "{error}");
}

#[tokio::test]
async fn what_was_said_before_closing_goes_out() {
    let mut router = bind().await;
    for round in 0..20 {
        let mut dealer = connect(&*router).await;
        dealer.send(Bytes::from(format!("register {round}"))).await.expect("room");
        dealer.send(Bytes::from(format!("leave {round}"))).await.expect("room");
        dealer.close().await;
        assert_eq!(receive(&mut *router).await.frames, [Bytes::from(format!("register {round}"))]);
        assert_eq!(receive(&mut *router).await.frames, [Bytes::from(format!("leave {round}"))]);
    }
}

#[tokio::test]
async fn closing_does_not_wait_for_a_coordinator_that_never_comes() {
    let address = nowhere();
    let limits = ZmqLimits { linger: std::time::Duration::from_millis(50), ..ZmqLimits::default() };
    let mut dealer = ZmqDealer::new().limits(limits).connect(&address).await.expect("an address");
    dealer.send(Bytes::from_static(b"leave")).await.expect("room");
    within("the close", dealer.close()).await;
}

#[tokio::test]
async fn a_bad_address_or_routing_id_is_invalid() {
    for bad in ["nowhere", "http://127.0.0.1:1", "tcp://127.0.0.1"] {
        assert!(matches!(ZmqDealer::new().connect(bad).await.err(), Some(Error::Invalid(_))), "{bad}");
    }
    let long = ZmqDealer::new().routing_id(vec![b'a'; 256]);
    assert!(matches!(long.connect("tcp://127.0.0.1:1").await.err(), Some(Error::Invalid(_))));
}

#[tokio::test]
async fn waiting_for_a_message_can_be_given_up_without_losing_one() {
    let mut router = bind().await;
    let mut dealer = connect(&*router).await;
    dealer.send(Bytes::from_static(b"here")).await.expect("room");
    let peer = receive(&mut *router).await.from;
    for number in 0..200_u32 {
        reply(&mut *router, &peer, number.to_string()).await;
        let message = loop {
            tokio::select! {
                biased;
                message = dealer.receive() => break message.expect("a message"),
                () = tokio::task::yield_now() => {}
            }
        };
        assert_eq!(message, [Bytes::from(number.to_string())]);
    }
}
