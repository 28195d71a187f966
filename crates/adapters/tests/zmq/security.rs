//! Accepted and rejected peers.

use bytes::Bytes;
use convoke_adapters::zmq::{ZmqCredentials, ZmqDealer, ZmqKeys, ZmqRouter, ZmqSecurity};
use convoke_core::ports::router::{Dealer, DealerConnecting, Router, RouterBinding, Sent};

use super::stage::{ANYWHERE, impatient, receive, refused, reply, within};

async fn bind(security: ZmqSecurity) -> Box<dyn Router> {
    let router = ZmqRouter::new(ANYWHERE).expect("an address").security(security).limits(impatient());
    router.bind().await.expect("a free port")
}

async fn connect(router: &dyn Router, credentials: ZmqCredentials) -> Box<dyn Dealer> {
    let dealer = ZmqDealer::new().credentials(credentials).limits(impatient());
    dealer.connect(router.address()).await.expect("an address")
}

fn plain(user: &str, password: &str) -> ZmqCredentials {
    ZmqCredentials::Plain { user: user.into(), password: password.into() }
}

async fn talks(router: &mut dyn Router, credentials: ZmqCredentials) {
    let mut dealer = connect(router, credentials).await;
    dealer.send(Bytes::from_static(b"hello")).await.expect("room");
    let received = receive(router).await;
    assert_eq!(received.frames, [Bytes::from_static(b"hello")]);
    assert_eq!(reply(router, &received.from, "welcome").await, Sent::Queued);
    assert_eq!(within("the reply", dealer.receive()).await.expect("a message"), [Bytes::from_static(b"welcome")]);
}

#[tokio::test]
async fn a_password_lets_its_user_in_and_nobody_else() {
    let users = vec![("ada".into(), "secret".into()), ("bob".into(), "other".into())];
    let mut router = bind(ZmqSecurity::Plain(users)).await;
    let wrong = [plain("ada", "other"), plain("eve", "secret"), plain("ada", ""), plain("adas", "ecret")];
    for (before, credentials) in wrong.into_iter().enumerate() {
        let mut dealer = connect(&*router, credentials).await;
        // It may have been rejected before it sends.
        if let Err(error) = dealer.send(Bytes::from_static(b"let me in")).await {
            assert!(error.is_transient(), "{error}");
        }
        let error = within("the refusal", dealer.receive()).await.expect_err("it is turned away");
        assert!(error.is_denied(), "{error}");
        refused(&*router, "it is counted", before as u64 + 1).await;
    }
    let _unknown = connect(&*router, ZmqCredentials::Open).await;
    refused(&*router, "the one without a password is counted", 5).await;
    talks(&mut *router, plain("ada", "secret")).await;
    talks(&mut *router, plain("bob", "other")).await;
}

#[tokio::test]
async fn a_worker_that_was_turned_away_gets_in_once_its_password_is_known() {
    let router = bind(ZmqSecurity::Plain(vec![])).await;
    let address = router.address().to_owned();
    let mut dealer = connect(&*router, plain("ada", "secret")).await;
    for _ in 0..3 {
        assert!(within("the refusal", dealer.receive()).await.expect_err("it is turned away").is_denied());
    }
    drop(router);
    let security = ZmqSecurity::Plain(vec![("ada".into(), "secret".into())]);
    let next = ZmqRouter::new(&address).expect("an address").security(security);
    let mut router = next.bind().await.expect("a free port");
    within("its message", async {
        loop {
            dealer.send(Bytes::from_static(b"me again")).await.expect("room");
            tokio::select! {
                received = receive(&mut *router) => break assert_eq!(received.frames, [Bytes::from_static(b"me again")]),
                refusal = dealer.receive() => assert!(refusal.expect_err("there was no reply").is_denied()),
            }
        }
    })
    .await;
}

#[tokio::test]
async fn a_key_of_the_server_is_enough_where_no_list_says_otherwise() {
    let keys = ZmqKeys::generate();
    let mut router = bind(ZmqSecurity::curve(&keys.secret_z85(), &[] as &[&str]).expect("a key")).await;
    let worker = ZmqKeys::generate();
    let trusting = ZmqCredentials::curve(&worker.secret_z85(), &keys.public_z85()).expect("both are keys");
    talks(&mut *router, trusting).await;

    let misled = ZmqCredentials::curve(&worker.secret_z85(), &ZmqKeys::generate().public_z85()).expect("keys");
    let _misled = connect(&*router, misled).await;
    refused(&*router, "the wrong server key is counted", 1).await;
    let _open = connect(&*router, ZmqCredentials::Open).await;
    refused(&*router, "the one without a key is counted", 2).await;
}

#[tokio::test]
async fn a_list_of_keys_lets_in_whom_it_names() {
    let (keys, known, unknown) = (ZmqKeys::generate(), ZmqKeys::generate(), ZmqKeys::generate());
    let security = ZmqSecurity::curve(&keys.secret_z85(), &[known.public_z85()]).expect("keys");
    let mut router = bind(security).await;
    let as_worker = |worker: &ZmqKeys| ZmqCredentials::curve(&worker.secret_z85(), &keys.public_z85()).expect("keys");
    let mut stranger = connect(&*router, as_worker(&unknown)).await;
    let error = within("the refusal", stranger.receive()).await.expect_err("it is turned away");
    assert!(error.is_denied(), "{error}");
    refused(&*router, "it is counted", 1).await;
    talks(&mut *router, as_worker(&known)).await;
}
