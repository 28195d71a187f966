//! A Redis that lost all it knew, and newcomers that ask it before anybody else does.

use std::sync::Arc;
use std::time::Duration;

use convoke::election::{ElectionEvent, Events};
use convoke::{Elector, connect};
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::{Epoch, Error};
use convoke_testkit::process::{RedisServer, wait_for_value};

const TTL: Duration = Duration::from_secs(3);

async fn start(url: &str, id: &str) -> Elector {
    Elector::connect(url).await.expect("connects").id(id).ttl(TTL).start().await.expect("starts")
}

/// The next leader that this elector receives, with its term.
async fn next_leader(events: &mut Events) -> (String, Epoch) {
    loop {
        let event = events.next().await.expect("goes on");
        if let ElectionEvent::LeaderChanged { new_leader: Some(leader), epoch, .. } = &event.what {
            return (leader.clone(), *epoch);
        }
    }
}

#[tokio::test]
async fn a_newcomer_to_a_wiped_redis_has_a_number_above_all_and_keeps_it() {
    let mut server = RedisServer::start().await;
    let a = start(&server.url(), "a").await;
    let before = lead_thrice(&a).await;
    let b = start(&server.url(), "b").await;
    assert_eq!(next_leader(&mut b.events()).await, ("a".into(), before));
    let mut events = b.events();
    let (newcomer, after) = be_first(&mut server, TTL * 20, Floor::UNKNOWN).await;
    assert!(after > before, "{after} after {before}");
    assert_eq!(next_leader(&mut events).await, ("newcomer".into(), after));
    // `a` has read the new leader too if it leaves the place to the newcomer.
    wait_for_value("that a knows", Some("newcomer".into()), || async { a.leader() }).await;
    newcomer.renew("default", "newcomer", after, TTL).await.expect("nobody ends its term");
    a.stop().await;
    b.stop().await;
}

#[tokio::test]
async fn epochs_rise_also_where_nobody_lived_through_the_loss() {
    let mut server = RedisServer::start().await;
    let mut before = Epoch(0);
    for _ in 0..2 {
        let a = start(&server.url(), "a").await;
        let epoch = lead_thrice(&a).await;
        assert!(epoch.0 > before.0 + 2, "{epoch} after {before}");
        before = epoch;
        a.stop().await;
        server.restart_empty().await;
    }
}

/// Has it lead three times. Gives the last number.
async fn lead_thrice(elector: &Elector) -> Epoch {
    let first = elector.lead().await.expect("leads").epoch();
    for epoch in [first.next(), first.next().next()] {
        elector.resign().await;
        assert_eq!(elector.lead().await.expect("leads").epoch(), epoch);
    }
    elector.epoch()
}

/// It has one where the server's clock was set back, too.
#[tokio::test]
async fn a_newcomer_with_an_old_number_leads_only_until_those_who_know_better_look() {
    let mut server = RedisServer::start().await;
    let a = start(&server.url(), "a").await;
    let before = lead_thrice(&a).await;
    let b = start(&server.url(), "b").await;
    assert_eq!(next_leader(&mut b.events()).await, ("a".into(), before));
    let (newcomer, old) = be_first(&mut server, TTL, Floor::Sealed(Epoch(0))).await;
    assert_eq!(old, Epoch(1));
    let mut events = b.events();
    // It renews for as long as it may; nobody waits for it to die.
    let deposed = tokio::time::timeout(TTL * 20, async {
        loop {
            match newcomer.renew("default", "newcomer", old, TTL).await {
                Ok(_) => tokio::time::sleep(TTL / 10).await,
                Err(error) => break error,
            }
        }
    });
    let refused = deposed.await.expect("members that know a newer term check");
    assert!(matches!(refused, Error::Fenced { .. }), "{refused}");
    let (leader, epoch) = next_leader(&mut events).await;
    assert!(leader != "newcomer" && epoch > before, "{leader} leads with {epoch}");
    a.stop().await;
    b.stop().await;
}

/// Wipes the server, and takes the place before anybody who must connect again: where one of them was quicker, once more.
async fn be_first(server: &mut RedisServer, ttl: Duration, floor: Floor) -> (Arc<dyn Leases>, Epoch) {
    loop {
        server.restart_empty().await;
        let leases = connect::leases(&server.url(), connect::BUS_PREFIX).await.expect("connects");
        match leases.elect("default", "newcomer", ttl, floor).await {
            Ok(lease) => return (leases, lease.epoch),
            Err(Error::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
