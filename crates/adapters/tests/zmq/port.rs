//! The port of a router, and that it is free after the router is dropped.

use std::net::TcpListener;

use bytes::Bytes;
use convoke_adapters::zmq::ZmqRouter;
use convoke_core::error::Error;
use convoke_core::ports::router::RouterBinding;

use super::stage::{bind, connect, receive, serves};

#[tokio::test]
async fn port_0_turns_into_a_real_one_that_is_told() {
    let mut router = bind().await;
    let port = router.address().strip_prefix("tcp://127.0.0.1:").expect("its address").to_owned();
    assert_ne!(port.parse::<u16>().expect("a port"), 0);
    serves(&mut *router).await;
}

#[tokio::test]
async fn an_address_that_is_taken_is_a_conflict() {
    let router = bind().await;
    let second = ZmqRouter::new(router.address()).expect("an address");
    assert!(matches!(second.bind().await.err(), Some(Error::Conflict(_))));

    let foreign = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let taken = format!("tcp://{}", foreign.local_addr().expect("it has one"));
    let error = ZmqRouter::new(&taken).expect("an address").bind().await.err().expect("it is taken");
    assert!(matches!(&error, Error::Conflict(message) if message.contains(&taken)), "{error}");
}

#[tokio::test]
async fn an_address_of_another_machine_is_invalid() {
    let error = ZmqRouter::new("tcp://192.0.2.1:5555").expect("an address").bind().await.err().expect("not ours");
    assert!(matches!(&error, Error::Invalid(_)), "{error}");
    assert!(error.to_string().contains("192.0.2.1"), "{error}");
}

#[tokio::test]
async fn a_router_that_is_dropped_frees_its_address_for_the_next_at_once() {
    let mut router = bind().await;
    let address = router.address().to_owned();
    for _ in 0..20 {
        // With a connection, so that the port is in use.
        let mut dealer = connect(&*router).await;
        dealer.send(Bytes::from_static(b"here")).await.expect("room");
        receive(&mut *router).await;
        drop(router);
        router = ZmqRouter::new(&address).expect("an address").bind().await.expect("its port is free again");
        assert_eq!(router.address(), address);
    }
    serves(&mut *router).await;
}

#[tokio::test]
async fn a_router_that_is_dropped_frees_its_address_for_another_process() {
    let router = bind().await;
    let _dealer = connect(&*router).await;
    let port = router.address().rsplit_once(':').expect("it has a port").1.to_owned();
    drop(router);
    // As patient as a standby, which also retries for a moment.
    let script = "import socket, sys, time\n\
                  for _ in range(30):\n    \
                      try:\n        \
                          socket.create_server(('127.0.0.1', int(sys.argv[1]))); sys.exit(0)\n    \
                      except OSError: time.sleep(0.01)\n\
                  sys.exit(1)";
    let status = tokio::process::Command::new("python3").args(["-c", script, &port]).status().await;
    assert!(status.expect("python3 runs").success());
}
