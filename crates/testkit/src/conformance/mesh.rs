//! Links of a mesh: numbers, channels, a registry, one leader.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::mesh::{InstanceId, MeshNode};
use convoke_core::ports::{Membership, MeshInbox, MeshLink};
use convoke_core::{Error, Result};
use tokio::sync::mpsc;

/// Tests of a link. `$make` is an async function that gives a [`Subject<dyn MeshLink>`](crate::conformance::Subject) to a mesh
/// where nobody ever was; `$advance` is one that lets a duration pass for the backend: it moves a paused clock, or waits.
#[macro_export]
macro_rules! mesh_conformance {
    ($make:expr, $advance:expr) => {
        $crate::conformance_tests!(
            $make,
            ($advance),
            (mesh),
            [
                numbers_are_counted_up_and_never_given_twice,
                a_message_reaches_the_one_it_is_sent_to,
                messages_of_one_sender_arrive_in_order,
                a_send_to_nobody_says_so,
                a_broadcast_reaches_everybody,
                who_dropped_its_membership_hears_no_more,
                any_bytes_arrive_as_they_were_sent,
                the_registry_has_who_joined_and_not_who_left,
                who_does_not_beat_is_not_listed,
                a_beat_brings_back_who_was_swept_out_with_its_hostname,
                one_leads_at_a_time,
                a_lock_that_is_not_renewed_is_free,
                only_the_holder_renews_and_resigns,
                a_sweep_names_who_is_gone_once,
                only_who_leads_sweeps,
                many_that_join_at_once_have_numbers_of_their_own,
            ]
        );
    };
}

/// Longer than any case takes.
const LONG: Duration = Duration::from_secs(600);
/// Short enough to wait for.
const SHORT: Duration = Duration::from_millis(300);
/// How long to wait until something short has expired.
const OVER: Duration = Duration::from_millis(400);

/// The messages that a member receives.
struct ChannelInbox(mpsc::UnboundedSender<Bytes>);

impl MeshInbox for ChannelInbox {
    fn on_message(&self, message: Bytes) {
        let _ = self.0.send(message);
    }

    fn missed(&self) {}
}

/// A member that has joined.
struct Member {
    seat: Box<dyn Membership>,
    received: mpsc::UnboundedReceiver<Bytes>,
}

impl Member {
    fn id(&self) -> InstanceId {
        self.seat.id()
    }

    async fn receive(&mut self) -> Bytes {
        let received = tokio::time::timeout(LONG, self.received.recv()).await;
        received.expect("a message comes").expect("the link keeps the inbox")
    }
}

async fn join(link: &dyn MeshLink, hostname: &str) -> Member {
    let (sender, received) = mpsc::unbounded_channel();
    Member { seat: link.join(hostname, Arc::new(ChannelInbox(sender))).await.expect("join"), received }
}

async fn send(link: &dyn MeshLink, to: InstanceId, text: &'static str) -> u64 {
    send_bytes(link, to, Bytes::from_static(text.as_bytes())).await
}

async fn send_bytes(link: &dyn MeshLink, to: InstanceId, message: Bytes) -> u64 {
    let [result] = <[_; 1]>::try_from(link.send(&[(to, message)]).await).expect("a result for each");
    result.expect("send")
}

/// The listed instances, with their host names.
async fn listed(link: &dyn MeshLink, ttl: Duration) -> Vec<(InstanceId, String)> {
    let nodes: Vec<MeshNode> = link.nodes(ttl).await.expect("nodes");
    assert!(nodes.iter().all(|node| node.idle < ttl && !node.is_self));
    nodes.into_iter().map(|node| (node.instance_id, node.hostname)).collect()
}

fn assert_fenced<T: std::fmt::Debug>(result: Result<T>) {
    assert!(matches!(result, Err(Error::Fenced { .. })), "expected a refusal by the fence, got {result:?}");
}

pub async fn numbers_are_counted_up_and_never_given_twice(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let (first, second) = (join(link, "a").await, join(link, "b").await);
    assert_eq!((first.id(), second.id()), (InstanceId(1), InstanceId(2)));
    second.seat.leave().await.expect("leave");
    drop(second);
    assert_eq!(join(link, "c").await.id(), InstanceId(3));
}

pub async fn a_message_reaches_the_one_it_is_sent_to(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let (mut a, mut b) = (join(link, "a").await, join(link, "b").await);
    assert_eq!(send(link, b.id(), "to b").await, 1);
    assert_eq!(send(link, a.id(), "to a").await, 1);
    assert_eq!(a.receive().await, "to a");
    assert_eq!(b.receive().await, "to b");
    assert!(a.received.is_empty() && b.received.is_empty());
}

pub async fn messages_of_one_sender_arrive_in_order(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let mut a = join(link, "a").await;
    for n in 0..100 {
        assert_eq!(send_bytes(link, a.id(), n.to_string().into()).await, 1);
    }
    let letters: Vec<_> = (100..200).map(|n| (a.id(), n.to_string().into())).collect();
    assert!(link.send(&letters).await.into_iter().all(|result| matches!(result, Ok(1))));
    for n in 0..200 {
        assert_eq!(a.receive().await, n.to_string());
    }
}

pub async fn a_send_to_nobody_says_so(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    assert_eq!(send(link, InstanceId(1), "x").await, 0);
    let a = join(link, "a").await;
    assert_eq!(send(link, InstanceId(a.id().0 + 1), "x").await, 0);
    assert_eq!(send(link, InstanceId(u64::MAX), "x").await, 0);
    // Among others, each receives its own reply.
    let letters = [0, 1, 0].map(|n| (InstanceId(a.id().0 + n), Bytes::from_static(b"x")));
    let results: Result<Vec<u64>> = link.send(&letters).await.into_iter().collect();
    assert_eq!(results.expect("send"), [1, 0, 1]);
}

pub async fn a_broadcast_reaches_everybody(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    assert_eq!(link.broadcast(Bytes::from_static(b"x")).await.expect("broadcast"), 0);
    let (mut a, mut b) = (join(link, "a").await, join(link, "b").await);
    assert!(link.broadcast(Bytes::from_static(b"all")).await.expect("broadcast") >= 1);
    assert_eq!((a.receive().await, b.receive().await), ("all".into(), "all".into()));
}

pub async fn who_dropped_its_membership_hears_no_more(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let (mut a, b) = (join(link, "a").await, join(link, "b").await);
    let (gone, mut received) = (b.id(), b.received);
    drop(b.seat);
    // The link may take a moment to report it; a result of zero receivers must be true.
    for _ in 0..1_000 {
        if send(link, gone, "x").await == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert_eq!(send(link, gone, "x").await, 0);
    link.broadcast(Bytes::from_static(b"all")).await.expect("broadcast");
    assert_eq!(a.receive().await, "all");
    while let Some(message) = received.recv().await {
        assert_ne!(message, "all", "and its inbox is closed");
    }
}

pub async fn any_bytes_arrive_as_they_were_sent(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let mut a = join(link, "a").await;
    let bytes: Bytes = (0..=255_u8).cycle().take(2 << 20).collect();
    for message in [Bytes::new(), Bytes::from_static(b"\r\n\0\xff"), bytes] {
        assert_eq!(send_bytes(link, a.id(), message.clone()).await, 1);
        assert!(a.receive().await == message);
    }
}

pub async fn the_registry_has_who_joined_and_not_who_left(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    assert!(listed(link, LONG).await.is_empty());
    let (a, b) = (join(link, "host-a").await, join(link, "größe b").await);
    assert_eq!(listed(link, LONG).await, [(a.id(), "host-a".into()), (b.id(), "größe b".into())]);
    a.seat.leave().await.expect("leave");
    a.seat.leave().await.expect("not an error");
    assert_eq!(listed(link, LONG).await, [(b.id(), "größe b".into())]);
}

pub async fn who_does_not_beat_is_not_listed(link: &dyn MeshLink, advance: impl AsyncFn(Duration)) {
    let (a, b) = (join(link, "a").await, join(link, "b").await);
    advance(OVER).await;
    assert_eq!(b.seat.heartbeat(SHORT).await.expect("beat"), 1);
    assert_eq!(listed(link, SHORT).await, [(b.id(), "b".into())], "although nobody swept");
    assert_eq!(listed(link, LONG).await.len(), 2);
    assert_eq!(a.seat.heartbeat(LONG).await.expect("beat"), 2);
    assert_eq!(listed(link, SHORT).await.len(), 2);
}

pub async fn a_beat_brings_back_who_was_swept_out_with_its_hostname(
    link: &dyn MeshLink,
    advance: impl AsyncFn(Duration),
) {
    let a = join(link, "host-a").await;
    advance(OVER).await;
    assert!(link.lead("l", LONG).await.expect("lead"));
    assert_eq!(link.sweep("l", SHORT).await.expect("sweep"), [a.id()]);
    assert!(listed(link, LONG).await.is_empty());
    a.seat.heartbeat(LONG).await.expect("beat");
    assert_eq!(listed(link, SHORT).await, [(a.id(), "host-a".into())]);
}

pub async fn one_leads_at_a_time(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let (a, b, c) = tokio::join!(link.lead("a", LONG), link.lead("b", LONG), link.lead("c", LONG));
    let won: Vec<_> = [a, b, c].into_iter().map(|result| result.expect("lead")).filter(|is_won| *is_won).collect();
    assert_eq!(won.len(), 1);
    assert!(!link.lead("d", LONG).await.expect("lead"));
    let again = [link.lead("a", LONG).await, link.lead("b", LONG).await, link.lead("c", LONG).await];
    let again: Result<Vec<bool>> = again.into_iter().collect();
    assert_eq!(
        again.expect("lead").into_iter().filter(|is_won| *is_won).count(),
        1,
        "the one that has it finds its own"
    );
}

pub async fn a_lock_that_is_not_renewed_is_free(link: &dyn MeshLink, advance: impl AsyncFn(Duration)) {
    assert!(link.lead("a", SHORT).await.expect("lead"));
    assert!(link.renew("a", LONG).await.expect("renew"));
    advance(OVER).await;
    assert!(!link.lead("b", LONG).await.expect("lead"), "it was renewed");
    assert!(link.renew("a", SHORT).await.expect("renew"));
    advance(OVER).await;
    assert!(!link.renew("a", LONG).await.expect("renew"), "it is over, even if nobody else has it");
    assert!(link.lead("b", LONG).await.expect("lead"));
}

pub async fn only_the_holder_renews_and_resigns(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    assert!(link.lead("a", LONG).await.expect("lead"));
    assert!(!link.renew("b", LONG).await.expect("renew"));
    link.resign("b").await.expect("not an error");
    assert!(!link.lead("b", LONG).await.expect("lead"), "it is still a's");
    link.resign("a").await.expect("resign");
    assert!(link.lead("b", LONG).await.expect("lead"));
}

pub async fn a_sweep_names_who_is_gone_once(link: &dyn MeshLink, advance: impl AsyncFn(Duration)) {
    let (a, b, c) = (join(link, "a").await, join(link, "b").await, join(link, "c").await);
    assert!(link.lead("l", LONG).await.expect("lead"));
    assert!(link.sweep("l", LONG).await.expect("sweep").is_empty());
    advance(OVER).await;
    b.seat.heartbeat(LONG).await.expect("beat");
    let mut gone = link.sweep("l", SHORT).await.expect("sweep");
    gone.sort();
    assert_eq!(gone, [a.id(), c.id()]);
    assert!(link.sweep("l", SHORT).await.expect("sweep").is_empty());
    assert_eq!(listed(link, LONG).await, [(b.id(), "b".into())]);
}

pub async fn only_who_leads_sweeps(link: &dyn MeshLink, advance: impl AsyncFn(Duration)) {
    let a = join(link, "a").await;
    assert_fenced(link.sweep("l", Duration::ZERO).await);
    assert!(link.lead("l", SHORT).await.expect("lead"));
    assert_fenced(link.sweep("m", Duration::ZERO).await);
    advance(OVER).await;
    assert_fenced(link.sweep("l", SHORT).await);
    assert_eq!(listed(link, LONG).await, [(a.id(), "a".into())], "nobody was removed");
}

pub async fn many_that_join_at_once_have_numbers_of_their_own(link: &dyn MeshLink, _advance: impl AsyncFn(Duration)) {
    let [a, b, c, d] = ["a", "b", "c", "d"].map(|hostname| join(link, hostname));
    let (a, b, c, d) = tokio::join!(a, b, c, d);
    let mut ids = [a.id(), b.id(), c.id(), d.id()];
    ids.sort();
    assert_eq!(ids, [1, 2, 3, 4].map(InstanceId));
    assert_eq!(listed(link, LONG).await.len(), 4);
}
