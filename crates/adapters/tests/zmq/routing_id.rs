//! The receivers of replies while peers connect and disconnect.

use bytes::Bytes;
use convoke_core::ports::router::{Peer, Sent};

use super::stage::{bind, by_hand, closed, connect, connect_as, receive, reply, serves, within};

#[tokio::test]
async fn nobody_hears_what_is_sent_to_an_unknown_address() {
    let mut router = bind().await;
    for id in [&b"nobody"[..], b"", &[0; 300]] {
        assert_eq!(reply(&mut *router, &Peer(Bytes::from_static(id)), "hello?").await, Sent::Gone);
    }
}

#[tokio::test]
async fn a_peer_that_hung_up_is_gone() {
    let mut router = bind().await;
    let (stream, peer) = by_hand(&mut *router, "short").await;
    drop(stream);
    within("its going to be noticed", async {
        while reply(&mut *router, &peer, "still there?").await != Sent::Gone {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn one_answer_for_each_message_in_order() {
    let mut router = bind().await;
    let mut dealer = connect(&*router).await;
    dealer.send(Bytes::from_static(b"here")).await.expect("room");
    let known = receive(&mut *router).await.from;
    let unknown = Peer(Bytes::from_static(b"nobody"));
    let sends = [&known, &unknown, &known, &unknown].map(|peer| (peer.clone(), Bytes::from_static(b"x")));
    assert_eq!(router.send(sends.into()).await, [Sent::Queued, Sent::Gone, Sent::Queued, Sent::Gone]);
}

/// The old connection is still open each time: the machine of the old worker lost its power, which is not noticed yet.
#[tokio::test]
async fn a_worker_that_comes_back_under_its_routing_id_is_heard_at_once() {
    let mut router = bind().await;
    let (_dead, _) = by_hand(&mut *router, "worker").await;
    let mut before = Vec::new();
    for round in 0..20 {
        let (stream, peer) = by_hand(&mut *router, "worker").await;
        before.push(stream);
        let message = format!("round {round}");
        assert_eq!(reply(&mut *router, &peer, message.clone()).await, Sent::Queued);
        let stream = before.last_mut().expect("it is there");
        within("the reply on the new connection", async {
            let mut bytes = Vec::new();
            while !String::from_utf8_lossy(&bytes).contains(&message) {
                tokio::io::AsyncReadExt::read_buf(stream, &mut bytes).await.expect("it is open");
            }
        })
        .await;
    }
    for mut stale in before.drain(..19) {
        closed(&mut stale).await;
    }
    serves(&mut *router).await;
}

#[tokio::test]
async fn a_stolen_routing_id_takes_the_answers_and_harms_nobody_else() {
    let mut router = bind().await;
    let mut other = connect_as(&*router, "other").await;
    other.send(Bytes::from_static(b"hello")).await.expect("room");
    let bystander = receive(&mut *router).await.from;
    let (mut owner, _) = by_hand(&mut *router, "victim").await;
    let mut thief = connect_as(&*router, "victim").await;
    thief.send(Bytes::from_static(b"mine")).await.expect("room");
    let from = receive(&mut *router).await.from;
    assert_eq!(from, Peer(Bytes::from_static(b"victim")));
    closed(&mut owner).await;
    reply(&mut *router, &from, "yours").await;
    assert_eq!(within("the reply", thief.receive()).await.expect("a message"), [Bytes::from_static(b"yours")]);
    reply(&mut *router, &bystander, "as before").await;
    assert_eq!(within("the reply", other.receive()).await.expect("a message"), [Bytes::from_static(b"as before")]);
}
