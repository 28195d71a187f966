//! The sealed epoch, and that every verb of a leader compares it.

use convoke_core::Epoch;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::wire::NodeState;
use convoke_core::ports::Store;
use convoke_core::ports::store::{Cutoffs, Tick};

use super::audit::act;
use super::members::{node_record, roster_change, worker_record};
use super::schedules::{schedule, schedule_name, tick_job};
use super::stage::*;

pub async fn the_sealed_epoch_only_rises(store: &dyn Store) {
    assert_eq!(store.sealed().await.expect("sealed"), Epoch(0));
    assert_eq!(store.seal(Epoch(5)).await.expect("seal").epoch(), Epoch(5));
    assert_fenced(store.seal(Epoch(5)).await);
    assert_fenced(store.seal(Epoch(4)).await);
    assert_eq!(store.sealed().await.expect("sealed"), Epoch(5));
    store.seal(Epoch(9)).await.expect("a higher one");
    assert_eq!(store.sealed().await.expect("sealed"), Epoch(9));
    store.ping().await.expect("ping");
}

pub async fn a_former_leader_cannot_promote(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([convoke_core::jobs::NewJob { run_at: Some(at(10)), ..job(1) }]).await;
    let before = stage.job(job_id(1)).await;
    let fence = stage.depose().await;
    assert_fenced(store.promote(stage.fence, at(20), 10).await);
    assert_eq!(stage.job(job_id(1)).await, before);
    assert_eq!(store.promote(fence, at(20), 10).await.expect("the leader's own").count, 1);
}

pub async fn a_former_leader_cannot_dispatch(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1)]).await;
    let before = stage.job(job_id(1)).await;
    let fence = stage.depose().await;
    assert_fenced(store.dispatch(stage.fence, stage.order("q", 1, at(1))).await);
    assert_eq!(stage.job(job_id(1)).await, before);
    assert_eq!(stage.queue("q").await.counts.in_flight(), 0);
    let run = store.dispatch(fence, stage.order("q", 1, at(1))).await.expect("the leader's own").runs.remove(0);
    assert_eq!(run.epoch, Epoch(2));
}

pub async fn a_former_leader_cannot_judge(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let before = stage.job(job_id(1)).await;
    let fence = stage.depose().await;
    assert_fenced(store.end_as_leader(stage.fence, vec![report(&run).ended(at(5), lost(), 0.0)]).await);
    assert_eq!(stage.job(job_id(1)).await, before);
    assert_eq!(stage.history(job_id(1)).await.len(), 1);
    store.end_as_leader(fence, vec![report(&run).ended(at(5), lost(), 0.0)]).await.expect("the leader's own");
    assert_eq!(stage.history(job_id(1)).await[0].status, convoke_core::jobs::ExecutionStatus::Lost);
}

pub async fn a_former_leader_cannot_mark_channels_cleaned(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end_by_channel(&run, at(5), completed()).await;
    let fence = stage.depose().await;
    assert_fenced(store.mark_cleaned(stage.fence, at(9), &[job_id(1)]).await);
    assert!(!stage.job(job_id(1)).await.channels_cleaned);
    store.mark_cleaned(fence, at(9), &[job_id(1)]).await.expect("the leader's own");
    assert!(stage.job(job_id(1)).await.channels_cleaned);
}

pub async fn a_former_leader_cannot_expire(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end(&run, at(5), completed()).await;
    let fence = stage.depose().await;
    let cutoffs = Cutoffs { completed: at(100), cancelled: at(100), dead: at(100) };
    assert_fenced(store.expire(stage.fence, cutoffs, 10).await);
    assert!(stage.find(job_id(1)).await.is_some());
    assert_eq!(store.expire(fence, cutoffs, 10).await.expect("the leader's own").jobs, 1);
}

pub async fn a_former_leader_cannot_tick(store: &dyn Store) {
    let stage = Stage::new(store).await;
    store.put_schedule(Schedule { next_run_at: Some(at(10)), ..schedule("s") }).await.expect("put");
    let tick = Tick {
        schedule: schedule_name("s"),
        expected: at(10),
        jobs: vec![tick_job("s", 1, 10)],
        skip_overlap: true,
        next_run_at: Some(at(20)),
    };
    let fence = stage.depose().await;
    assert_fenced(store.tick(stage.fence, vec![tick.clone()]).await);
    assert!(stage.find(job_id(1)).await.is_none());
    let kept = store.schedule(&schedule_name("s")).await.expect("schedule").expect("there");
    assert_eq!(kept.next_run_at, Some(at(10)));
    assert!(store.tick(fence, vec![tick]).await.expect("the leader's own")[0].moved);
}

pub async fn a_former_leader_cannot_remove_workers(store: &dyn Store) {
    let stage = Stage::new(store).await;
    store.record_worker_heartbeats(&[worker_record("w")]).await.expect("a heartbeat");
    let fence = stage.depose().await;
    assert_fenced(store.remove_workers(Some(stage.fence), &[worker("w")]).await);
    assert_eq!(store.workers().await.expect("workers"), [worker_record("w")]);
    store.remove_workers(Some(fence), &[worker("w")]).await.expect("the leader's own");
    assert!(store.workers().await.expect("workers").is_empty());
}

pub async fn a_former_leader_cannot_retire_or_forget_a_node(store: &dyn Store) {
    let stage = Stage::new(store).await;
    store.record_node_heartbeat(node_record("n")).await.expect("a heartbeat");
    let fence = stage.depose().await;
    assert_fenced(store.retire_node(Some(stage.fence), &node("n"), NodeState::Dead, at(9)).await);
    assert_eq!(store.nodes().await.expect("nodes"), [node_record("n")]);
    store.retire_node(Some(fence), &node("n"), NodeState::Dead, at(9)).await.expect("the leader's own");
    assert_fenced(store.forget_nodes(stage.fence, &[node("n")]).await);
    assert_eq!(store.nodes().await.expect("nodes").len(), 1);
    store.forget_nodes(fence, &[node("n")]).await.expect("the leader's own");
    assert!(store.nodes().await.expect("nodes").is_empty());
}

pub async fn a_former_leader_cannot_change_the_roster_of_shard_workers(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let listed = roster_change(&[("s", "a")], &[]);
    store.change_shard_roster(stage.fence, &listed).await.expect("change");
    let fence = stage.depose().await;
    assert_fenced(store.change_shard_roster(stage.fence, &roster_change(&[("s", "b")], &[("s", "a")])).await);
    assert_eq!(store.shard_roster().await.expect("roster"), listed.add);
    store.change_shard_roster(fence, &roster_change(&[], &[("s", "a")])).await.expect("the leader's own");
    assert!(store.shard_roster().await.expect("roster").is_empty());
}

pub async fn a_former_leader_cannot_expire_the_record_of_acts(store: &dyn Store) {
    let stage = Stage::new(store).await;
    store.append_audit(act(1, "ada", "queue.pause", "mail")).await.expect("append");
    let fence = stage.depose().await;
    assert_fenced(store.expire_audit(stage.fence, at(9), 10).await);
    assert_eq!(store.expire_audit(fence, at(9), 10).await.expect("the leader's own"), 1);
}
