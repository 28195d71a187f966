//! Extractors and layers.

use std::error::Error as StdError;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context as TaskContext, Poll};

use parking_lot::Mutex;
use tower::ServiceBuilder;
use tower::limit::ConcurrencyLimitLayer;
use tower::timeout::TimeoutLayer;
use tower_layer::{Layer, layer_fn};
use tower_service::Service;

use super::*;
use crate::{Args, Epoch, ExecutionId, FromRun, JobId, Json, RetryPolicy, Run, RunService, State, StateMap};

/// Counts what handlers did.
#[derive(Clone, Default)]
struct Count(Arc<AtomicUsize>);

async fn sum(
    State(count): State<Count>,
    id: JobId,
    Args(job): Args<Add>,
    epoch: Epoch,
    cx: Context,
    run: ExecutionId,
) -> Result<i64> {
    count.0.fetch_add(1, Ordering::Relaxed);
    assert_eq!((id, run, epoch), (cx.job_id(), cx.execution_id(), cx.epoch()));
    assert!(epoch > Epoch(0), "a leader dispatched it");
    Ok(job.a + job.b)
}

#[tokio::test]
async fn a_handler_takes_extractors_in_any_order() {
    let world = world().await;
    let count = Count::default();
    let (_stop, _worker) = world.start(world.worker().handle(sum).state(count.clone()));
    let handle = world.client.enqueue(Add { a: 2, b: 3 }).queue("math").await.expect("enqueued");
    assert_eq!(handle.wait().await.expect("it completes"), 5);
    assert_eq!(count.0.load(Ordering::Relaxed), 1);
}

#[tokio::test]
async fn a_handler_takes_one_argument_or_eight() {
    type S<T> = State<T>;
    let world = world().await;
    let eight = async |_: Context, _: JobId, _: ExecutionId, _: Epoch, s: S<u8>, t: S<u16>, u: S<u32>, job: Add| {
        Ok::<_, Error>(i64::from(s.0) + i64::from(t.0) + i64::from(u.0) + job.a)
    };
    let worker = world.worker().state(1u8).state(2u16).state(4u32).handle(eight);
    let worker = worker.handle_named("one", async |Args(n): Args<i64>| Ok::<_, Error>(n + 1));
    let (_stop, _worker) = world.start(worker);
    let handle = world.client.enqueue(Add { a: 8, b: 0 }).queue("math").await.expect("enqueued");
    assert_eq!(handle.wait().await.expect("it completes"), 15);
    let handle = world.client.enqueue_raw("one", 1).queue("math").await.expect("enqueued");
    assert_eq!(handle.wait().await.expect("it completes"), 2);
}

#[tokio::test]
async fn a_worker_without_the_state_of_a_handler_does_not_start() {
    let world = world().await;
    let worker = world.worker().state(String::new()).handle(sum);
    let error = worker.run_until(std::future::pending()).await.expect_err("no count");
    assert_eq!(
        error.to_string(),
        "the handler of \"math.add\" cannot be called: the worker has no state of the type \
         convoke::tests::handlers::Count: add it by .state(…)"
    );
    assert!(matches!(&error, Error::Handler { source, .. } if matches!(**source, Error::MissingState(_))), "{error:?}");
    assert!(error.source().is_some());
    assert!(world.coordinator.store().workers().await.expect("workers").is_empty(), "it did not register");
}

struct Tenant(String);

impl FromRun for Tenant {
    fn from_run(run: &Run) -> Result<Self> {
        let tenant = run.context().tags().iter().find_map(|tag| tag.strip_prefix("tenant:"));
        let tenant = tenant.ok_or_else(|| Error::permanent("no tag tenant:NAME"))?;
        Ok(Tenant(format!("{tenant} of {}", run.state::<Count>()?.0.load(Ordering::Relaxed))))
    }

    fn check(state: &StateMap) -> Result<()> {
        state.get::<Count>()?;
        Ok(())
    }
}

#[tokio::test]
async fn an_extractor_of_the_application_is_checked_at_the_start_and_read_for_each_run() {
    let world = world().await;
    let named = async |Tenant(name): Tenant| Ok::<_, Error>(name);
    let error = world.worker().handle_named("who", named).run_until(std::future::pending()).await;
    assert!(error.expect_err("no count").to_string().contains("handlers::Count"));
    let (_stop, _worker) = world.start(world.worker().handle_named("who", named).state(Count::default()));
    let handle = world.client.enqueue_raw("who", ()).queue("math").tag("tenant:ann").await.expect("enqueued");
    assert_eq!(handle.wait().await.expect("it completes"), "ann of 0");
    let handle = world.client.enqueue_raw("who", ()).queue("math").max_retries(3).await.expect("enqueued");
    let error = handle.wait().await.expect_err("no tenant").to_string();
    assert!(error.ends_with("ended as failed: no tag tenant:NAME"), "{error}");
    assert_eq!(handle.job().await.expect("known").attempt, 1, "a permanent failure is not retried");
}

/// Records its name around each run.
#[derive(Clone)]
struct Named<S> {
    inner: S,
    name: &'static str,
    seen: Arc<Mutex<Vec<String>>>,
}

impl<S: Service<Run>> Service<Run> for Named<S> {
    type Response = S::Response;
    type Error = S::Error;
    type Future = S::Future;

    fn poll_ready(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<(), S::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, mut run: Run) -> S::Future {
        self.seen.lock().push(format!("{} {}", self.name, run.context().job_type()));
        let mut args: Vec<String> = run.args().to().expect("names");
        args.push(self.name.to_owned());
        run.set_args(Json::of(&args).expect("names"));
        self.inner.call(run)
    }
}

fn named(
    name: &'static str,
    seen: &Arc<Mutex<Vec<String>>>,
) -> impl Layer<RunService, Service = Named<RunService>> + use<> {
    let seen = seen.clone();
    layer_fn(move |inner| Named { inner, name, seen: seen.clone() })
}

#[tokio::test]
async fn the_last_layer_is_the_outermost_and_changes_what_the_handler_receives() {
    let world = world().await;
    let seen = Arc::default();
    let worker = world.worker().layer(named("inner", &seen));
    let worker = worker.handle_named("echo", async |Args(names): Args<Vec<String>>| Ok::<_, Error>(names));
    let (_stop, _worker) = world.start(worker.layer(named("outer", &seen)));
    let handle = world.client.enqueue_raw("echo", ["sent"]).queue("math").await.expect("enqueued");
    assert_eq!(handle.wait().await.expect("it completes"), serde_json::json!(["sent", "outer", "inner"]));
    assert_eq!(*seen.lock(), ["outer echo", "inner echo"]);
}

#[tokio::test]
async fn a_timeout_of_a_layer_fails_the_run_and_the_job_is_retried() {
    let world = world().await;
    let endless = async |cx: Context| {
        if cx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok::<_, Error>(cx.attempt())
    };
    let worker = world.worker().handle_named("endless", endless).layer(TimeoutLayer::new(Duration::from_millis(20)));
    let (_stop, _worker) = world.start(worker);
    let handle = world.client.enqueue_raw("endless", ()).queue("math").max_retries(0).await.expect("enqueued");
    let error = handle.wait().await.expect_err("it takes too long").to_string();
    assert!(error.ends_with("ended as failed: request timed out"), "{error}");
    let policy = RetryPolicy { initial_delay: Duration::from_millis(1), ..RetryPolicy::default() };
    let again = world.client.enqueue_raw("endless", ()).queue("math").max_retries(1).retry_policy(policy);
    let handle = again.await.expect("enqueued");
    assert_eq!(handle.wait().await.expect("the second attempt completes"), 2);
}

/// Refuses every run.
#[derive(Clone)]
struct Refuse;

impl Service<Run> for Refuse {
    type Response = Option<Json>;
    type Error = Box<dyn StdError + Send + Sync>;
    type Future = std::future::Ready<Result<Option<Json>, Self::Error>>;

    fn poll_ready(&mut self, _: &mut TaskContext<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Run) -> Self::Future {
        std::future::ready(Err(Error::permanent("refused").into()))
    }
}

#[tokio::test]
async fn a_permanent_error_of_a_layer_or_of_a_handler_below_layers_is_not_retried() {
    let world = world().await;
    let layered = world.worker().handle(add).layer(TimeoutLayer::new(Duration::from_secs(60)));
    let (stop, worker) = world.start(layered);
    let handle = world.client.enqueue(Add { a: i64::MAX, b: 1 }).queue("math").await.expect("enqueued");
    assert!(handle.wait().await.expect_err("it fails").to_string().ends_with("ended as failed: it does not fit"));
    assert_eq!(handle.job().await.expect("known").attempt, 1);
    stop.notify_one();
    worker.await.expect("no panic").expect("it drained");
    let (_stop, _worker) = world.start(world.worker().handle(add).layer(layer_fn(|_: RunService| Refuse)));
    let handle = world.client.enqueue(Add { a: 1, b: 1 }).queue("math").await.expect("enqueued");
    assert!(handle.wait().await.expect_err("refused").to_string().ends_with("ended as failed: refused"));
    assert_eq!(handle.job().await.expect("known").attempt, 1);
}

#[tokio::test]
async fn a_limit_of_a_layer_holds_for_all_handlers_together() {
    let world = world().await;
    let (running, most) = (Count::default(), Count::default());
    let busy = async |State([running, most]): State<[Count; 2]>| {
        most.0.fetch_max(running.0.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        tokio::task::yield_now().await;
        running.0.fetch_sub(1, Ordering::SeqCst);
        Ok::<_, Error>(())
    };
    let worker = world.worker().state([running, most.clone()]).handle_named("a", busy).handle_named("b", busy);
    let limit = ServiceBuilder::new().layer(ConcurrencyLimitLayer::new(2)).layer(TimeoutLayer::new(LONG));
    let (_stop, _worker) = world.start(worker.concurrency(20).layer(limit));
    let mut handles = Vec::new();
    for n in 0..40 {
        let job_type = if n % 2 == 0 { "a" } else { "b" };
        handles.push(world.client.enqueue_raw(job_type, ()).queue("math").await.expect("enqueued"));
    }
    for handle in handles {
        handle.wait().await.expect("it completes");
    }
    assert_eq!(most.0.load(Ordering::SeqCst), 2, "as many as the limit admits, and no more");
}

const LONG: Duration = Duration::from_secs(60);

#[derive(Debug, thiserror::Error)]
#[error("the disk is full")]
struct Full(#[source] std::io::Error);

#[tokio::test]
async fn an_error_keeps_its_causes_and_the_job_shows_all_of_them() {
    let error = Error::other(Full(std::io::Error::other("no space")));
    assert_eq!(error.to_string(), "the disk is full");
    assert_eq!(error.source().map(ToString::to_string).as_deref(), Some("no space"));
    let world = world().await;
    let worker = world
        .worker()
        .handle_named("ours", async |_: Context| Err::<(), _>(Error::other(Full(std::io::Error::other("no space")))));
    let worker = worker.handle_named("boxed", async |_: Context| {
        Err::<(), Box<dyn StdError + Send + Sync>>(Full(std::io::Error::other("no space")).into())
    });
    let (_stop, _worker) = world.start(worker);
    for job_type in ["ours", "boxed"] {
        let handle = world.client.enqueue_raw(job_type, ()).queue("math").max_retries(0).await.expect("enqueued");
        let error = handle.wait().await.expect_err("it fails").to_string();
        assert!(error.ends_with("ended as failed: the disk is full: no space"), "{error}");
    }
}
