//! Jobs that are inserted together wait in one row and are dispatched from it in parts; runs of one dispatch are in one
//! row until something happens to them.
#![cfg(feature = "postgres")]

use std::collections::HashSet;

use convoke_adapters::postgres::PostgresStore;
use convoke_core::jobs::priority::Priority;
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::wire::Dispatch;
use convoke_core::jobs::{Claim, NewJob, Outcome, Ownership, RunReport, Status};
use convoke_core::ports::store::*;
use convoke_core::{ExecutionId, JobId};
use convoke_testkit::conformance::store::schedules::schedule;
use convoke_testkit::conformance::store::stage::*;
use convoke_testkit::conformance::store::unreadable::{self, Column};
use convoke_testkit::process::SharedPostgres;
use tokio_postgres::Client;
use uuid::Uuid;

/// A store whose queue and type are known, so that jobs are inserted in packs.
async fn prepared() -> (String, PostgresStore, Client) {
    let url = SharedPostgres::get().create_database();
    let store = PostgresStore::connect(&url).await.expect("connects");
    store.insert(vec![job(9_999)]).await.expect("insert");
    store.cancel(&[job_id(9_999)], None, at(0)).await.expect("cancel");
    let (client, connection) = tokio_postgres::connect(&url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    (url, store, client)
}

async fn number(client: &Client, sql: &str) -> i64 {
    client.query_one(sql, &[]).await.expect("read").get(0)
}

async fn rows(client: &Client, table: &str) -> i64 {
    number(client, &format!("select count(*) from convoke_{table}")).await
}

fn ids(runs: &[Dispatch]) -> Vec<JobId> {
    runs.iter().map(|run| run.job_id).collect()
}

fn late(n: u64, second: i64) -> NewJob {
    NewJob { created_at: at(second), ..job(n) }
}

#[tokio::test]
async fn packs_that_overlap_are_dispatched_in_the_order_of_ranks() {
    let (_, store, client) = prepared().await;
    let stage = Stage::new(&store).await;
    // Three batches over the same times, in each of them every priority; and jobs that were stored in reverse.
    let mut all: Vec<NewJob> = Vec::new();
    for batch in 0..3 {
        let mut jobs: Vec<NewJob> = (0..400)
            .map(|n| {
                let second = if n % 7 == 0 { 400 - n as i64 } else { n as i64 };
                let priority = Priority::ALL[n as usize % Priority::ALL.len()];
                late(batch * 1_000 + n + 1, second).with(|job| job.priority = priority)
            })
            .collect();
        if batch == 1 {
            jobs.reverse();
        }
        stage.enqueue(jobs.clone()).await;
        all.extend(jobs);
    }
    assert!(rows(&client, "waiting").await < 20, "many jobs in a row");
    // By rank; stored earlier before stored later.
    all.sort_by_key(|job| job.definition.priority.rank(job.created_at));
    let expected: Vec<JobId> = all.iter().map(|job| job.id).collect();
    let mut served = Vec::new();
    for limit in [1, 7, 160, 161, 500, 1_000] {
        let runs = stage.dispatch("q", limit, at(1_000)).await;
        assert_eq!(runs.len(), limit.min(all.len() - served.len()));
        served.extend(ids(&runs));
    }
    assert_eq!(served, expected);
    assert_eq!(rows(&client, "waiting").await, 0);
    stage.assert_counters().await;
}

#[tokio::test]
async fn a_job_that_is_cancelled_leaves_the_others_of_its_pack() {
    let (_, store, client) = prepared().await;
    let stage = Stage::new(&store).await;
    stage.enqueue((1..=100).map(job)).await;
    assert_eq!(rows(&client, "waiting").await, 1);
    let gone = [1, 2, 50, 51, 53, 100].map(job_id);
    let cancelled = store.cancel(&gone, Some("no"), at(1)).await.expect("cancel");
    assert!(cancelled.iter().all(|it| matches!(it, Cancelled::Now { run: None, .. })), "{cancelled:?}");
    assert_eq!(stage.queue("q").await.oldest_pending_at, Some(at(0)));
    let first = stage.dispatch("q", 60, at(2)).await;
    let second = stage.dispatch("q", 60, at(3)).await;
    let expected: Vec<JobId> = (1..=100).map(job_id).filter(|id| !gone.contains(id)).collect();
    assert_eq!([ids(&first), ids(&second)].concat(), expected);
    for (runs, second) in [(&first, 2), (&second, 3)] {
        for run in runs {
            let job = stage.job(run.job_id).await;
            let shown = (job.status, job.execution_id, job.dispatched_at, job.attempt);
            assert_eq!(shown, (Status::Dispatched, Some(run.execution_id), Some(at(second)), 1));
        }
    }
    // In flight, of one row: some complete, one is cancelled, one fails and runs again, one starts.
    let (rest, ended) = first.split_at(3);
    store.record(ended.iter().map(|run| report(run).ended(at(4), completed(), 0.0)).collect()).await.expect("record");
    store.cancel(&[rest[0].job_id], None, at(5)).await.expect("cancel");
    stage.end(&rest[1], at(5), Outcome::Released).await;
    stage.start(&rest[2], "w", at(5)).await;
    assert_eq!(stage.job(rest[0].job_id).await.status, Status::Cancelled);
    assert_eq!(stage.dispatch_one(at(6)).await.job_id, rest[1].job_id);
    assert_eq!(stage.job(rest[2].job_id).await.status, Status::Running);
    stage.assert_counters().await;
    let dispatched = JobQuery { statuses: vec![Status::Dispatched], limit: 100, ..JobQuery::default() };
    assert_eq!(stage.list(dispatched).await.len(), second.len() + 1);
    let found = store.in_flight(InFlightFilter::default(), None, 1_000).await.expect("in flight");
    assert_eq!(found.len(), second.len() + 2);
    assert_eq!(rows(&client, "flights").await, 0, "all runs in flight have rows of their own");
    store.record(second.iter().map(|run| report(run).ended(at(7), completed(), 0.0)).collect()).await.expect("record");
    assert_eq!(store.in_flight(InFlightFilter::default(), None, 1_000).await.expect("in flight").len(), 2);
    stage.assert_counters().await;
}

#[tokio::test]
async fn the_owners_of_a_window_share_its_packs() {
    let (_, store, client) = prepared().await;
    let stage = Stage::new(&store).await;
    stage.enqueue((1..=300).map(job)).await;
    let share = |name: &str, runs| OwnerShare { node: node(name), runs };
    // The same node twice, with another between.
    let owners = vec![share("n1", 50), share("n2", 150), share("n1", 60)];
    let windows = vec![Window { owners, ..Window::new(queue("q"), 290) }];
    let order = DispatchOrder { now: at(1), windows, executions: stage.executions(290) };
    let runs = store.dispatch(stage.fence, order).await.expect("dispatch").runs;
    for (n, run) in runs.iter().enumerate() {
        let owner = [(50, Some("n1")), (200, Some("n2")), (260, Some("n1")), (290, None)];
        let owner = owner.iter().find(|(past, _)| n < *past).and_then(|(_, owner)| owner.map(node));
        let job = stage.job(run.job_id).await;
        assert_eq!((job.owner_node, job.execution_id), (owner, Some(run.execution_id)), "run {n}");
    }
    assert!(rows(&client, "flights").await < 10, "many runs in a row");
    // An end by another node than the owner is rejected, one by the owner or by nobody in particular is not.
    let by = |run: &Dispatch, name: &str| {
        let owner = Some(Claim::IfFree(node(name)));
        RunReport { owner, ..report(run) }.ended(at(2), completed(), 0.0)
    };
    assert_eq!(stage.record(by(&runs[60], "n1")).await, Recorded::NotOwner);
    assert!(matches!(stage.record(by(&runs[60], "n2")).await, Recorded::Applied(_)));
    assert!(matches!(stage.record(by(&runs[289], "n3")).await, Recorded::Applied(_)));
    assert_eq!(stage.job(runs[289].job_id).await.owner_node, Some(node("n3")));
    let change = Reassign {
        job: runs[0].job_id,
        execution: runs[0].execution_id,
        from: node("n1"),
        to: Handover::Take(node("n2")),
    };
    assert_eq!(store.reassign(vec![change]).await.expect("reassign"), [Reassigned::Done]);
    let moved = stage.job(runs[0].job_id).await;
    assert_eq!((moved.owner_node, moved.ownership), (Some(node("n2")), Ownership::Owned));
    assert_eq!(stage.record(by(&runs[0], "n1")).await, Recorded::NotOwner);
    let of = |name: &str| InFlightFilter { owner: Some(node(name)), ..InFlightFilter::default() };
    assert_eq!(store.in_flight(of("n1"), None, 1_000).await.expect("in flight").len(), 109);
    assert_eq!(store.in_flight(of("n2"), None, 1_000).await.expect("in flight").len(), 150);
    stage.assert_counters().await;
}

#[tokio::test]
async fn a_run_that_lasts_gets_a_row_of_its_own_and_rows_of_many_runs_go() {
    let (_, store, client) = prepared().await;
    let stage = Stage::new(&store).await;
    stage.enqueue((1..=200).map(job)).await;
    let runs = stage.dispatch("q", 200, at(1)).await;
    let end = |runs: &[Dispatch]| runs.iter().map(|run| report(run).ended(at(2), completed(), 0.0)).collect();
    store.record(end(&runs[..197])).await.expect("record");
    assert_eq!((rows(&client, "flights").await, rows(&client, "runs").await), (2, 0));
    store.promote(stage.fence, at(10), 9).await.expect("promote");
    assert_eq!((rows(&client, "flights").await, rows(&client, "runs").await), (0, 3));
    store.promote(stage.fence, at(10), 9).await.expect("promote");
    assert_eq!(rows(&client, "flight_ends").await, 0, "what was counted is forgotten with its flight");
    for run in &runs[197..] {
        let job = stage.job(run.job_id).await;
        assert_eq!((job.status, job.execution_id), (Status::Dispatched, Some(run.execution_id)));
    }
    let recorded = store.record(end(&runs[190..])).await.expect("record");
    let applied = recorded.iter().filter(|it| matches!(it, Recorded::Applied(_))).count();
    let duplicates = recorded.iter().filter(|it| **it == Recorded::Duplicate).count();
    assert_eq!((applied, duplicates), (3, 7));
    assert_eq!(rows(&client, "runs").await, 0);
    let completed = "select sum(cardinality(seqs))::bigint from convoke_completed";
    assert_eq!(number(&client, completed).await, 200);
    stage.assert_counters().await;
}

/// Ends, cancellations, moves to rows of their own and reassignments meet on the same runs.
#[tokio::test(flavor = "multi_thread")]
async fn each_run_ends_once_whoever_else_writes_to_it() {
    let (url, store, client) = prepared().await;
    let other = PostgresStore::connect(&url).await.expect("connects");
    let fence = {
        let stage = Stage::new(&store).await;
        stage.fence
    };
    for round in 0..10u64 {
        let jobs: Vec<NewJob> = (1..=300).map(|n| job(round * 1_000 + n)).collect();
        store.insert(jobs).await.expect("insert");
        let order = DispatchOrder {
            now: at(1),
            windows: vec![Window::new(queue("q"), 300)],
            executions: (0..300).map(|_| ExecutionId(Uuid::now_v7())).collect(),
        };
        let runs = store.dispatch(fence, order).await.expect("dispatch").runs;
        assert_eq!(runs.len(), 300);
        let end = |store: &PostgresStore, runs: Vec<Dispatch>, part: usize| {
            let store = store.clone();
            tokio::spawn(async move {
                let mut ended = Vec::new();
                for runs in runs.chunks(part) {
                    let reports = runs.iter().map(|run| report(run).ended(at(2), completed(), 0.0)).collect();
                    let recorded = store.record(reports).await.expect("record");
                    let applied = runs.iter().zip(recorded).filter(|(_, it)| matches!(it, Recorded::Applied(_)));
                    ended.extend(applied.map(|(run, _)| run.job_id));
                }
                ended
            })
        };
        let (mut backward, mut forward) = (runs.clone(), runs.clone());
        backward.reverse();
        forward.sort_by_key(|run| run.job_id);
        let ends = [end(&store, forward, 40), end(&other, backward, 30)];
        let cancel = tokio::spawn({
            let (other, ids) = (other.clone(), ids(&runs));
            async move {
                let mut cancelled = Vec::new();
                for ids in ids.chunks(25).step_by(2) {
                    let results = other.cancel(ids, None, at(2)).await.expect("cancel");
                    let now = ids.iter().zip(results).filter(|(_, it)| matches!(it, Cancelled::Now { .. }));
                    cancelled.extend(now.map(|(id, _)| *id));
                }
                cancelled
            }
        });
        for store in [&store, &other] {
            store.in_flight(InFlightFilter::default(), None, 1_000).await.expect("in flight");
        }
        let mut ended = cancel.await.expect("no panic");
        for end in ends {
            ended.extend(end.await.expect("no panic"));
        }
        let once: HashSet<JobId> = ended.iter().copied().collect();
        assert_eq!((once.len(), ended.len()), (300, 300), "each of them ended once");
    }
    store.promote(fence, at(100), 9).await.expect("promote");
    let left = "select (select count(*) from convoke_waiting) + (select count(*) from convoke_flights)
                       + (select count(*) from convoke_runs)";
    assert_eq!(number(&client, left).await, 0);
    let counts = store.queue(&queue("q")).await.expect("queue").expect("there").counts;
    assert_eq!(counts.in_flight(), 0);
    assert_eq!(counts.get(Status::Completed) + counts.get(Status::Cancelled), 3_001);
}

/// A dispatch beside cancellations of jobs of the same packs.
#[tokio::test(flavor = "multi_thread")]
async fn a_job_is_either_cancelled_or_dispatched_while_it_waits() {
    let (url, store, client) = prepared().await;
    let other = PostgresStore::connect(&url).await.expect("connects");
    let stage = Stage::new(&store).await;
    stage.enqueue((1..=1_000).map(job)).await;
    let cancel = tokio::spawn(async move {
        let mut waiting = 0;
        for n in (1..=1_000).step_by(3) {
            let result = other.cancel(&[job_id(1_001 - n)], None, at(2)).await.expect("cancel").remove(0);
            waiting += usize::from(matches!(result, Cancelled::Now { run: None, .. }));
        }
        waiting
    });
    let mut served = Vec::new();
    while stage.queue("q").await.counts.get(Status::Pending) > 0 {
        served.extend(ids(&stage.dispatch("q", 11, at(1)).await));
    }
    let waiting = cancel.await.expect("no panic");
    let once: HashSet<JobId> = served.iter().copied().collect();
    assert_eq!((once.len(), served.len()), (1_000 - waiting, 1_000 - waiting));
    assert_eq!(rows(&client, "waiting").await, 0);
    stage.assert_counters().await;
}

#[tokio::test]
async fn a_job_that_cannot_be_read_fails_alone() {
    let (_, store, client) = prepared().await;
    let write = async |job: JobId, column: Column, text: &'static str| {
        let name = if column == Column::Document { "document" } else { "args" };
        let update = format!("update convoke_jobs set {name} = $2 where id = $1");
        assert_eq!(client.execute(&update, &[&job.0, &text]).await.expect("written"), 1);
    };
    unreadable::a_job_that_cannot_be_read_fails_alone(&store, write).await;
}

#[tokio::test]
async fn a_schedule_that_cannot_be_read_hides_no_other() {
    let (_, store, client) = prepared().await;
    for name in ["a", "b"] {
        store.put_schedule(Schedule { next_run_at: Some(at(10)), ..schedule(name) }).await.expect("put");
    }
    client.execute("update convoke_schedules set document = '{}' where name = 'a'", &[]).await.expect("written");
    let names = |schedules: Vec<Schedule>| schedules.iter().map(|each| each.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(store.schedules().await.expect("schedules")), ["b"]);
    assert_eq!(names(store.due_schedules(at(99), 9).await.expect("due").due), ["b"]);
}
