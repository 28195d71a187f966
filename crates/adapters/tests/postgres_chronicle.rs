//! The checks of the cluster against a real store: they pass over a valid history, and fail over every fence that is
//! broken behind the store's back. A check that cannot fail would prove nothing.
#![cfg(feature = "postgres")]

use convoke_adapters::postgres::PostgresStore;
use convoke_core::election::Fence;
use convoke_core::jobs::run::{Claim, Outcome};
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{JobSpec, RetrySettings, RunReport};
use convoke_core::ports::store::{
    DispatchOrder, EpochStore, Handover, JobStore, Reassign, Reassigned, Recorded, RunStore, Window,
};
use convoke_core::{Epoch, ExecutionId, JobId, JobType, NodeId, QueueName};
use convoke_testkit::invariants::{Broken, Entry, j4_one_record, j6_one_owner, l1_one_holder, l2_sealed};
use convoke_testkit::process::{Chronicler, SharedPostgres};
use jiff::Timestamp;
use uuid::Uuid;

/// Two nodes on one store: `n1` leads, both own runs.
struct Cluster {
    n1: PostgresStore,
    n2: PostgresStore,
    fence: Fence,
    chronicler: Chronicler,
}

fn now() -> Timestamp {
    Timestamp::from_microsecond(Timestamp::now().as_microsecond()).expect("in range")
}

fn queue() -> QueueName {
    QueueName::new("q").expect("a name")
}

fn node(name: &str) -> NodeId {
    NodeId::new(name).expect("a name")
}

impl Cluster {
    async fn start() -> Cluster {
        let url = SharedPostgres::get().create_database();
        let connect =
            async |name| PostgresStore::connect(&format!("{url}&application_name={name}")).await.expect("connects");
        let (n1, n2) = (connect("n1").await, connect("n2").await);
        let fence = n1.seal(Epoch(1)).await.expect("nothing is sealed yet");
        let chronicler = Chronicler::install(&url, "n1").await;
        Cluster { n1, n2, fence, chronicler }
    }

    /// Starts a job that `n1` dispatched and owns.
    async fn running(&self) -> Dispatch {
        let spec = JobSpec::new(JobType::new("t").expect("a name")).with(|job| job.queue = Some(queue()));
        let job = spec.into_job(JobId(Uuid::now_v7()), now(), &RetrySettings::default()).expect("a job");
        self.n2.insert(vec![job]).await.expect("insert");
        let windows = vec![Window::new(queue(), 1)];
        let order = DispatchOrder { now: now(), windows, executions: vec![ExecutionId(Uuid::now_v7())] };
        let run = self.n1.dispatch(self.fence, order).await.expect("dispatch").runs.pop().expect("a run");
        let started = RunReport {
            owner: Some(Claim::IfFree(node("n1"))),
            started_at: Some(now()),
            ..RunReport::of(run.job_id, run.execution_id)
        };
        record(&self.n1, started).await;
        run
    }

    async fn broken(&self) -> Vec<Broken> {
        let entries: Vec<Entry> = self.chronicler.entries().await;
        let mut broken = l1_one_holder::check(&l1_one_holder::terms(&entries));
        broken.extend(l2_sealed::check(&l2_sealed::audit(&entries)));
        broken.extend(j4_one_record::check_history(&entries));
        broken.extend(j6_one_owner::check(&entries));
        broken
    }

    /// Returns the findings after these statements have been run behind the store's back.
    async fn found_after(&self, sql: &str) -> Vec<&'static str> {
        assert_eq!(self.broken().await, [], "before anything is broken");
        self.chronicler.meddle(sql).await;
        let mut found: Vec<&str> = self.broken().await.iter().map(|it| it.invariant).collect();
        found.dedup();
        found
    }
}

async fn record(store: &PostgresStore, report: RunReport) {
    let recorded = store.record(vec![report]).await.expect("record");
    assert!(matches!(recorded.as_slice(), [Recorded::Applied(_)]), "{recorded:?}");
}

async fn complete(store: &PostgresStore, name: &str, run: &Dispatch) {
    let report = RunReport { owner: Some(Claim::IfFree(node(name))), ..RunReport::of(run.job_id, run.execution_id) };
    record(store, report.ended(now(), Outcome::Completed { result: None }, 0.5)).await;
}

async fn hand_over(cluster: &Cluster, run: &Dispatch) {
    let change = |to| vec![Reassign { job: run.job_id, execution: run.execution_id, from: node("n1"), to }];
    assert_eq!(cluster.n1.reassign(change(Handover::Offer)).await.expect("a result"), [Reassigned::Done]);
    assert_eq!(cluster.n2.reassign(change(Handover::Take(node("n2")))).await.expect("a result"), [Reassigned::Done]);
}

#[tokio::test]
async fn an_honest_history_with_a_handoff_and_a_change_of_leader_holds() {
    let mut cluster = Cluster::start().await;
    let (handed, kept) = (cluster.running().await, cluster.running().await);
    hand_over(&cluster, &handed).await;
    complete(&cluster.n2, "n2", &handed).await;
    cluster.fence = cluster.n1.seal(Epoch(2)).await.expect("a higher epoch");
    complete(&cluster.n1, "n1", &kept).await;
    complete(&cluster.n1, "n1", &cluster.running().await).await;
    assert_eq!(cluster.broken().await, []);
    let rows = cluster.chronicler.rows().await;
    assert_eq!(rows.len(), 3);
    assert_eq!(rows[&handed.job_id.to_string()].owner.as_deref(), Some("n2"));
}

#[tokio::test]
async fn an_owner_that_was_rewritten_is_found() {
    let cluster = Cluster::start().await;
    cluster.running().await;
    assert_eq!(cluster.found_after("update convoke_runs set owner = 'n2'").await, ["J6"]);
}

#[tokio::test]
async fn an_end_that_was_rewritten_and_repaired_is_found() {
    let cluster = Cluster::start().await;
    complete(&cluster.n1, "n1", &cluster.running().await).await;
    assert_eq!(cluster.found_after("update convoke_jobs set state = 6").await, ["J4"]);
    cluster.chronicler.meddle("update convoke_jobs set state = 5").await;
    assert!(!cluster.broken().await.is_empty(), "that it is as it was does not undo it");
}

#[tokio::test]
async fn an_epoch_that_fell_is_found() {
    let cluster = Cluster::start().await;
    cluster.n2.seal(Epoch(5)).await.expect("a higher epoch");
    let found = cluster.found_after("update convoke_cluster set sealed = 1").await;
    assert!(found.contains(&"L1") && found.contains(&"L2"), "{found:?}");
}

/// A former leader's write without a fence: the seal is set back for the moment of its write.
#[tokio::test]
async fn a_write_of_a_former_leader_is_found() {
    let cluster = Cluster::start().await;
    cluster.n2.seal(Epoch(2)).await.expect("a higher epoch");
    let silenced = "alter table convoke_cluster disable trigger chronicle; update convoke_cluster set sealed = 1";
    assert_eq!(cluster.found_after(silenced).await, [] as [&str; 0], "the chronicle was kept from seeing it");
    cluster.running().await;
    let found: Vec<&str> = cluster.broken().await.iter().map(|it| it.invariant).collect();
    assert!(found.contains(&"L2"), "{found:?}");
}

/// Without its trigger the chronicle misses a change: the next one does not begin where the last one ended.
#[tokio::test]
async fn a_change_that_was_kept_from_the_chronicle_is_found() {
    let cluster = Cluster::start().await;
    let run = cluster.running().await;
    let silent = "alter table convoke_runs disable trigger chronicle; update convoke_runs set owner = 'n2'; \
                  alter table convoke_runs enable trigger chronicle";
    assert_eq!(cluster.found_after(silent).await, [] as [&str; 0], "nothing was seen yet");
    complete(&cluster.n2, "n2", &run).await;
    let found: Vec<&str> = cluster.broken().await.iter().map(|it| it.invariant).collect();
    assert!(found.contains(&"J6"), "{found:?}");
}
