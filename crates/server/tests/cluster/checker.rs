//! The checker itself: over a cluster at work it is silent, and a fence that is broken behind the cluster's back is found.

use convoke_testkit::invariants::{Broken, j4_one_record, j6_one_owner, l1_one_holder, l2_sealed};
use convoke_testkit::process::{Chronicler, eventually};

use super::stage::Stage;

async fn broken(chronicler: &Chronicler) -> Vec<Broken> {
    let entries = chronicler.entries().await;
    let mut broken = l1_one_holder::check(&l1_one_holder::terms(&entries));
    broken.extend(l2_sealed::check(&l2_sealed::audit(&entries)));
    broken.extend(j4_one_record::check_history(&entries));
    broken.extend(j6_one_owner::check(&entries));
    broken
}

async fn finds(chronicler: &Chronicler, invariant: &str) -> bool {
    broken(chronicler).await.iter().any(|it| it.invariant == invariant)
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_rewritten_behind_the_clusters_back_is_found() {
    let stage = Stage::open().await;
    let chronicler = &stage.chronicler;
    assert_eq!(broken(chronicler).await, [], "before anything is broken");

    // Only of a run that is under way at this moment; some moment will do. One run: more would be locked in another order
    // than by the nodes, and could deadlock with them.
    let steal = "update convoke_runs set owner = 'nobody', ownership = 1
                 where id = (select id from convoke_runs where started_at is not null limit 1)";
    eventually("a stolen run", || async {
        chronicler.meddle(steal).await;
        finds(chronicler, "J6").await.then_some(())
    })
    .await;
    assert!(!finds(chronicler, "J4").await, "no end was touched yet");
    chronicler.meddle("update convoke_jobs set result = '\"forged\"' where state = 5").await;
    assert!(finds(chronicler, "J4").await);
    assert!(!finds(chronicler, "L1").await, "no epoch was touched yet");
    chronicler.meddle("update convoke_cluster set sealed = sealed - 1").await;
    assert!(finds(chronicler, "L1").await && finds(chronicler, "L2").await);
}
