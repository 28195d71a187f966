//! A Redis that lost all it knew, and a newcomer that asks it before anybody else does.

use std::sync::Arc;
use std::time::Duration;

use convoke::election::{Events, Happening};
use convoke::{Elector, connect};
use convoke_core::ports::Leases;
use convoke_core::{Epoch, Error};
use convoke_testkit::process::RedisServer;

const TTL: Duration = Duration::from_secs(3);

async fn start(url: &str, id: &str) -> Elector {
    Elector::connect(url).await.expect("connects").id(id).ttl(TTL).start().await.expect("starts")
}

/// The next leader of whom that elector hears, with its term.
async fn next_leader(events: &mut Events) -> (String, Epoch) {
    loop {
        let event = events.next().await.expect("goes on");
        if let Happening::LeaderChanged { new_leader: Some(leader), epoch, .. } = &event.what {
            return (leader.clone(), *epoch);
        }
    }
}

#[tokio::test]
async fn a_newcomer_to_a_wiped_redis_leads_only_until_those_who_know_better_look() {
    let mut server = RedisServer::start().await;
    let a = start(&server.url(), "a").await;
    for epoch in 1..=3 {
        assert_eq!(a.lead().await.expect("leads").epoch(), Epoch(epoch));
        if epoch < 3 {
            a.resign().await;
        }
    }
    let b = start(&server.url(), "b").await;
    assert_eq!(next_leader(&mut b.events()).await, ("a".into(), Epoch(3)));
    let newcomer = usurp(&mut server).await;
    let mut events = b.events();
    // It renews for as long as it may; nobody waits for it to die.
    let deposed = tokio::time::timeout(TTL * 20, async {
        loop {
            match newcomer.renew("default", "newcomer", Epoch(1), TTL).await {
                Ok(_) => tokio::time::sleep(TTL / 10).await,
                Err(error) => break error,
            }
        }
    });
    let refused = deposed.await.expect("those who know better look");
    assert!(matches!(refused, Error::Fenced { .. }), "{refused}");
    let (leader, epoch) = next_leader(&mut events).await;
    assert!(leader != "newcomer" && epoch > Epoch(3), "{leader} leads with {epoch}");
    a.stop().await;
    b.stop().await;
}

/// Wipes the server, and takes the place before anybody who must connect again: where one of them was quicker, once more.
async fn usurp(server: &mut RedisServer) -> Arc<dyn Leases> {
    loop {
        server.restart_empty().await;
        let leases = connect::leases(&server.url(), connect::BUS_PREFIX).await.expect("connects");
        match leases.elect("default", "newcomer", TTL, Epoch(0)).await {
            Ok(lease) => {
                assert_eq!(lease.epoch, Epoch(1), "the server knows nothing");
                return leases;
            }
            Err(Error::Conflict(_)) => {}
            Err(error) => panic!("{error}"),
        }
    }
}
