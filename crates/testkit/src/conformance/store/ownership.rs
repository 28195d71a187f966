//! The owner of a job's events, and handoffs.

use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{Claim, Ownership, RunReport, Status};
use convoke_core::ports::Store;
use convoke_core::ports::store::{Handover, InFlightFilter, Reassign, Reassigned, Recorded};

use super::stage::*;

fn take(name: &str) -> Handover {
    Handover::Take(node(name))
}

async fn reassign(stage: &Stage<'_>, run: &Dispatch, from: &str, to: Handover) -> Reassigned {
    let change = Reassign { job: run.job_id, execution: run.execution_id, from: node(from), to };
    stage.store.reassign(vec![change]).await.expect("reassign").pop().expect("a result for the change")
}

fn claims(run: &Dispatch, name: &str) -> RunReport {
    RunReport { owner: Some(Claim::IfFree(node(name))), by_channel: true, ..report(run) }
}

async fn owner(stage: &Stage<'_>, run: &Dispatch) -> (Option<String>, Ownership) {
    let job = stage.job(run.job_id).await;
    (job.owner_node.map(|node| node.to_string()), job.ownership)
}

pub async fn the_first_to_claim_a_free_run_has_it(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.apply(claims(&run, "a")).await;
    assert_eq!(stage.record(claims(&run, "b")).await, Recorded::NotOwner);
    stage.apply(claims(&run, "a")).await;
    assert_eq!(owner(&stage, &run).await, (Some("a".into()), Ownership::Owned));
}

pub async fn who_does_not_own_a_run_changes_nothing_of_it(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.apply(claims(&run, "a")).await;
    let before = stage.job(run.job_id).await;
    let started = RunReport { started_at: Some(at(2)), logs: vec![log("no")], ..claims(&run, "b") };
    for report in
        [started.clone(), started.ended(at(3), completed(), 0.0), claims(&run, "b").ended(at(3), failed("x"), 0.0)]
    {
        assert_eq!(stage.record(report).await, Recorded::NotOwner);
    }
    assert_eq!(stage.job(run.job_id).await, before);
    assert!(store.logs(run.job_id, 0, 9).await.expect("logs").is_empty());
    let change = stage.apply(claims(&run, "a").ended(at(4), completed(), 0.0)).await;
    assert_eq!(change.status, Status::Completed);
    stage.assert_counters().await;
}

pub async fn a_gateway_that_handed_a_run_out_owns_it(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.apply(claims(&run, "a")).await;
    stage.apply(RunReport { owner: Some(Claim::Take(node("b"))), ..report(&run) }).await;
    assert_eq!(owner(&stage, &run).await, (Some("b".into()), Ownership::Owned));
    assert_eq!(stage.record(claims(&run, "a")).await, Recorded::NotOwner);
}

pub async fn an_offered_run_is_taken_once_and_stays_the_same_run(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.apply(claims(&run, "a")).await;
    assert_eq!(reassign(&stage, &run, "a", Handover::Offer).await, Reassigned::Done);
    assert_eq!(owner(&stage, &run).await, (Some("a".into()), Ownership::HandingOff));
    // Its owner goes on recording meanwhile.
    stage.apply(RunReport { started_at: Some(at(2)), ..claims(&run, "a") }).await;
    assert_eq!(owner(&stage, &run).await, (Some("a".into()), Ownership::HandingOff));
    assert_eq!(reassign(&stage, &run, "a", take("b")).await, Reassigned::Done);
    assert_eq!(reassign(&stage, &run, "a", take("c")).await, Reassigned::OwnedBy(Some(node("b"))));
    assert_eq!(reassign(&stage, &run, "a", take("b")).await, Reassigned::OwnedBy(Some(node("b"))));
    assert_eq!(stage.record(claims(&run, "a")).await, Recorded::NotOwner);
    let job = stage.job(run.job_id).await;
    assert_eq!((job.execution_id, job.attempt, job.status), (Some(run.execution_id), 1, Status::Running));
    assert_eq!(owner(&stage, &run).await, (Some("b".into()), Ownership::Owned));
}

pub async fn only_its_owner_can_offer_keep_or_abandon_a_run(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    for to in [Handover::Offer, Handover::Keep, Handover::Orphan] {
        assert_eq!(reassign(&stage, &run, "a", to).await, Reassigned::OwnedBy(None));
    }
    stage.apply(claims(&run, "a")).await;
    for to in [Handover::Offer, Handover::Keep, Handover::Orphan] {
        assert_eq!(reassign(&stage, &run, "b", to).await, Reassigned::OwnedBy(Some(node("a"))));
    }
    assert_eq!(reassign(&stage, &run, "a", Handover::Offer).await, Reassigned::Done);
    assert_eq!(reassign(&stage, &run, "a", Handover::Keep).await, Reassigned::Done);
    assert_eq!(owner(&stage, &run).await, (Some("a".into()), Ownership::Owned));
}

pub async fn orphans_and_runs_that_nobody_owns_can_be_taken_by_anyone(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([1, 2].map(job)).await;
    let runs = stage.dispatch("q", 2, at(1)).await;
    stage.apply(claims(&runs[0], "a")).await;
    assert_eq!(reassign(&stage, &runs[0], "a", Handover::Orphan).await, Reassigned::Done);
    assert_eq!(owner(&stage, &runs[0]).await, (Some("a".into()), Ownership::OrphanPending));
    for run in &runs {
        assert_eq!(reassign(&stage, run, "leader", take("b")).await, Reassigned::Done);
        assert_eq!(owner(&stage, run).await, (Some("b".into()), Ownership::Owned));
    }
}

pub async fn a_run_that_is_over_cannot_be_taken(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([1, 2].map(job)).await;
    let runs = stage.dispatch("q", 2, at(1)).await;
    for run in &runs {
        stage.apply(claims(run, "a")).await;
    }
    stage.end(&runs[0], at(2), completed()).await;
    stage.end(&runs[1], at(2), convoke_core::jobs::Outcome::Released).await;
    stage.dispatch("q", 1, at(3)).await;
    for run in &runs {
        assert_eq!(reassign(&stage, run, "a", take("b")).await, Reassigned::Over);
        assert_eq!(reassign(&stage, run, "a", Handover::Offer).await, Reassigned::Over);
    }
    assert_eq!(stage.job(runs[1].job_id).await.owner_node, None, "its next run is nobody's yet");
    let unknown = Reassign { job: job_id(9), execution: execution_id(9), from: node("a"), to: take("b") };
    assert_eq!(store.reassign(vec![unknown]).await.expect("reassign"), [Reassigned::Over]);
}

pub async fn runs_on_their_way_to_another_owner_are_found(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([1, 2, 3].map(job)).await;
    let runs = stage.dispatch("q", 3, at(1)).await;
    for run in &runs {
        stage.apply(claims(run, "a")).await;
    }
    let offers = [(&runs[0], Handover::Offer), (&runs[2], Handover::Orphan)];
    let changes =
        offers.map(|(run, to)| Reassign { job: run.job_id, execution: run.execution_id, from: node("a"), to });
    assert_eq!(store.reassign(changes.to_vec()).await.expect("reassign"), [Reassigned::Done, Reassigned::Done]);
    let moving = InFlightFilter { moving: true, ..InFlightFilter::default() };
    let found = store.in_flight(moving, None, 9).await.expect("in flight");
    let found: Vec<_> = found.into_iter().map(|run| (run.job, run.ownership)).collect();
    assert_eq!(found, [(job_id(1), Ownership::HandingOff), (job_id(3), Ownership::OrphanPending)]);
}
