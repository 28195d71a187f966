//! Rate limits beside those that queues set for themselves: one over all queues, and one for each queue that sets none.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::common::{ports, quick, report, spec, worker};
use convoke_core::jobs::link::{Event, EventKind, Poll, Register, WorkerLink};
use convoke_core::jobs::{QueuePatch, RateLimit};
use convoke_core::{NodeId, QueueName};
use convoke_runtime::jobs::{Coordinator, Ports, RateLimitSettings};

const HOUR: Duration = Duration::from_secs(3_600);

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn rate(limit: u32, per: Duration) -> Option<RateLimit> {
    Some(RateLimit { limit, per })
}

async fn start(ports: &Ports, rate_limit: RateLimitSettings) -> Coordinator {
    let mut settings = quick();
    settings.rate_limit = rate_limit;
    let node = NodeId::new("n1").expect("a name");
    let coordinator = Coordinator::start(node, ports.clone(), settings).await.expect("it starts");
    coordinator.ready().await;
    coordinator
}

async fn enqueue(coordinator: &Coordinator, name: &str, count: usize) {
    let jobs = vec![spec().with(|job| job.queue = Some(queue(name))); count];
    coordinator.enqueue_batch(jobs).await.expect("they are enqueued");
}

async fn serve(coordinator: &Coordinator, queues: &[&str], concurrency: u32) {
    let queues = queues.iter().map(|name| queue(name)).collect();
    let register = Register { worker_id: Some(worker("w")), name: None, queues, concurrency };
    coordinator.register(register).await.expect("it registers");
}

/// Polls and completes until `total` runs were given, and returns how many of each queue.
async fn run(coordinator: &Coordinator, total: usize) -> BTreeMap<String, usize> {
    let mut given: BTreeMap<String, usize> = BTreeMap::new();
    while given.values().sum::<usize>() < total {
        let poll = Poll { worker_id: worker("w"), max: 100, wait: Duration::from_secs(5) };
        let jobs = coordinator.poll(poll).await.expect("a poll returns").jobs;
        for job in &jobs {
            *given.entry(job.input.queue.to_string()).or_default() += 1;
        }
        let done = jobs.iter().map(|job| Event::new(job.job_id, job.execution_id, EventKind::Completed));
        report(coordinator, "w", done.collect()).await;
    }
    given
}

async fn is_given_nothing(coordinator: &Coordinator) {
    let poll = Poll { worker_id: worker("w"), max: 100, wait: Duration::from_millis(100) };
    assert_eq!(coordinator.poll(poll).await.expect("a poll returns").jobs, []);
}

#[tokio::test]
async fn a_limit_over_all_queues_is_shared_by_them_and_holds_across_a_restart() {
    let ports = ports();
    let limits = || RateLimitSettings { global: rate(6, HOUR), default: None };
    let first = start(&ports, limits()).await;
    for (name, count) in [("a", 50), ("b", 1), ("c", 50)] {
        enqueue(&first, name, count).await;
    }
    serve(&first, &["a", "b", "c"], 200).await;
    let given = run(&first, 6).await;
    assert_eq!(given.get("b"), Some(&1), "what wants little gets it: {given:?}");
    let (a, c) = (given["a"], given["c"]);
    assert!(a + c == 5 && a.abs_diff(c) == 1, "{given:?}");
    is_given_nothing(&first).await;
    first.stop().await;
    let second = start(&ports, limits()).await;
    serve(&second, &["a", "b", "c"], 200).await;
    is_given_nothing(&second).await;
    second.stop().await;
}

/// With the limit used up all the time, and one queue that is hinted at again and again.
#[tokio::test]
async fn no_queue_starves_while_the_limit_over_all_queues_is_used_up() {
    let limits = RateLimitSettings { global: rate(1, Duration::from_millis(5)), default: None };
    let coordinator = start(&ports(), limits).await;
    for name in ["a", "b", "c"] {
        enqueue(&coordinator, name, 40).await;
    }
    serve(&coordinator, &["a", "b", "c"], 100).await;
    let mut given: BTreeMap<String, usize> = BTreeMap::new();
    for _ in 0..30 {
        enqueue(&coordinator, "a", 1).await;
        for (name, count) in run(&coordinator, 2).await {
            *given.entry(name).or_default() += count;
        }
    }
    assert!(["a", "b", "c"].iter().all(|name| given.get(*name).is_some_and(|count| *count >= 10)), "{given:?}");
    coordinator.stop().await;
}

#[tokio::test]
async fn a_queue_without_a_limit_has_the_default_from_its_first_job_on() {
    let limits = RateLimitSettings { global: None, default: rate(2, HOUR) };
    let coordinator = start(&ports(), limits).await;
    let own = QueuePatch { rate_limit: Some(rate(4, HOUR)), ..QueuePatch::default() };
    coordinator.configure_queue(&queue("own"), own).await.expect("it is limited");
    // The worker is there before the queues have jobs.
    serve(&coordinator, &["new", "other", "own"], 100).await;
    for name in ["new", "other", "own"] {
        enqueue(&coordinator, name, 10).await;
    }
    let given = run(&coordinator, 8).await;
    assert_eq!(given, [("new", 2), ("other", 2), ("own", 4)].map(|(name, count)| (name.to_owned(), count)).into());
    is_given_nothing(&coordinator).await;
    let effective = async |name| {
        let view = coordinator.queue_view(&queue(name)).await.expect("it is there");
        (view.queue.rate_limit, view.effective_rate_limit)
    };
    assert_eq!(effective("new").await, (None, rate(2, HOUR)));
    assert_eq!(effective("own").await, (rate(4, HOUR), rate(4, HOUR)));
    // Its own limit goes, the default applies, and what was granted counts.
    let none = QueuePatch { rate_limit: Some(None), ..QueuePatch::default() };
    coordinator.configure_queue(&queue("own"), none).await.expect("the limit is removed");
    is_given_nothing(&coordinator).await;
    coordinator.stop().await;
}
