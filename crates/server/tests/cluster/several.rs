//! Several faults in a row on one cluster, as it meets them in years of operation: what one fault leaves behind must not
//! turn the next one into a loss.
//!
//! The faults are those of the other files, which `scripts/test --full` also makes one at a time.

use super::stage::Stage;
use super::{follower_killed, leader_killed, parted_from_postgres, parted_from_redis, redis_emptied, worker_killed};

#[tokio::test(flavor = "multi_thread")]
async fn a_worker_a_follower_and_the_leader_are_killed() {
    let mut stage = Stage::open().await;
    worker_killed::kill_worker(&mut stage).await;
    follower_killed::kill_follower(&mut stage).await;
    leader_killed::kill_leader(&mut stage).await;
    stage.close().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_leader_loses_the_store_a_follower_the_bus_and_the_bus_everything() {
    let mut stage = Stage::open().await;
    parted_from_postgres::part_leader(&mut stage).await;
    parted_from_redis::freeze_follower(&mut stage).await;
    redis_emptied::empty_after_a_while(&mut stage).await;
    stage.close().await;
}
