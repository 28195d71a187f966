//! `serve --demo`: sample workers in this process, a few schedules, and a steady flow of jobs.
//!
//! The jobs show the possible outcomes: `demo.fast` completes, `demo.slow` reports progress and logs, `demo.flaky`
//! fails sometimes and is retried, `demo.doomed` sometimes fails permanently and becomes a dead letter.

use std::sync::Arc;
use std::time::Duration;

use convoke_core::jobs::schedule::ScheduleSpec;
use convoke_core::jobs::{JobSpec, LogLevel, Priority, RetryPolicy};
use convoke_core::{JobType, Json, QueueName, Result, ScheduleName};
use convoke_runtime::jobs::Coordinator;
use convoke_runtime::jobs::worker::{Context, Failure, HandlerFuture, Handlers, Settings, Shutdown, Worker};
use tokio::task::JoinSet;

const QUEUES: [&str; 2] = ["demo", "demo-reports"];
/// The longest time between two sample jobs.
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// The grace period of running jobs when the server stops.
const GRACE: Duration = Duration::from_secs(2);

pub struct Demo {
    shutdown: Shutdown,
    tasks: JoinSet<()>,
}

/// Starts the demo on a coordinator that is ready.
pub fn start(coordinator: &Coordinator) -> Demo {
    let mut demo = Demo { shutdown: Shutdown::default(), tasks: JoinSet::new() };
    for queue in QUEUES {
        let (coordinator, shutdown) = (coordinator.clone(), demo.shutdown.clone());
        demo.tasks.spawn(async move {
            let worker = worker(&coordinator, queue);
            if let Err(error) = async { worker?.run(shutdown).await }.await {
                tracing::warn!(queue, %error, "sample worker could not start");
            }
        });
    }
    let (coordinator, stop) = (coordinator.clone(), demo.shutdown.drain.clone());
    demo.tasks.spawn(async move {
        stop.run_until_cancelled(async {
            if let Err(error) = schedules(&coordinator).await {
                tracing::warn!(%error, "sample schedules could not be created");
            }
            trickle(&coordinator).await;
        })
        .await;
    });
    tracing::info!("demo started: sample workers, schedules and jobs");
    demo
}

impl Demo {
    pub async fn stop(mut self) {
        self.shutdown.drain.cancel();
        while self.tasks.join_next().await.is_some() {}
    }
}

fn worker(coordinator: &Coordinator, queue: &str) -> Result<Worker> {
    let settings = Settings {
        name: Some(format!("sample worker of {queue}")),
        queues: vec![QueueName::new(queue)?],
        concurrency: 4,
        shutdown_grace: GRACE,
        ..Settings::default()
    };
    let mut handlers = Handlers::default();
    handlers.add(JobType::new("demo.fast")?, |cx, _| boxed(fast(cx)));
    handlers.add(JobType::new("demo.slow")?, |cx, _| boxed(slow(cx)));
    handlers.add(JobType::new("demo.flaky")?, |cx, _| boxed(flaky(cx)));
    handlers.add(JobType::new("demo.doomed")?, |cx, _| boxed(doomed(cx)));
    Ok(Worker::new(Arc::new(coordinator.clone()), coordinator.clock().clone(), settings, handlers))
}

fn boxed(run: impl Future<Output = Result<Option<Json>, Failure>> + Send + 'static) -> HandlerFuture {
    Box::pin(run)
}

async fn fast(cx: Context) -> Result<Option<Json>, Failure> {
    cx.log(LogLevel::Info, "done at once").await.map_err(Failure::new)?;
    Json::of(&serde_json::json!({ "greeting": "hello" })).map(Some).map_err(Failure::new)
}

async fn slow(cx: Context) -> Result<Option<Json>, Failure> {
    for step in 1..=10u8 {
        let pause = Duration::from_millis(rand::random_range(100..600));
        tokio::time::sleep(pause).await;
        cx.log(LogLevel::Info, format!("page {step} of 10 is written")).await.map_err(Failure::new)?;
        cx.progress(step * 10, format!("{step} of 10 pages")).await.map_err(Failure::new)?;
    }
    Ok(None)
}

async fn flaky(cx: Context) -> Result<Option<Json>, Failure> {
    tokio::time::sleep(Duration::from_millis(200)).await;
    if rand::random_bool(0.5) {
        cx.log(LogLevel::Warn, format!("attempt {} did not reach the other side", cx.attempt()))
            .await
            .map_err(Failure::new)?;
        return Err(Failure::new("the other side did not reply"));
    }
    Ok(None)
}

async fn doomed(cx: Context) -> Result<Option<Json>, Failure> {
    if rand::random_bool(0.3) {
        cx.log(LogLevel::Error, "the account is closed").await.map_err(Failure::new)?;
        return Err(Failure::permanent("the account is closed: another attempt would be in vain"));
    }
    Ok(None)
}

async fn schedules(coordinator: &Coordinator) -> Result<()> {
    let schedules = [
        ("demo-pulse", r#"{"type":"demo.fast","queue":"demo","every":"15s"}"#),
        ("demo-report", r#"{"type":"demo.slow","queue":"demo-reports","cron":"* * * * *"}"#),
        ("demo-nightly", r#"{"type":"demo.slow","queue":"demo-reports","cron":"0 3 * * *","tz":"Europe/Berlin"}"#),
    ];
    for (name, spec) in schedules {
        let spec: ScheduleSpec = serde_json::from_str(spec).expect("the sample schedules are valid");
        coordinator.put_schedule(ScheduleName::new(name)?, spec).await?;
    }
    Ok(())
}

async fn trickle(coordinator: &Coordinator) {
    loop {
        let roll = rand::random_range(0..10);
        if let Err(error) = enqueue(coordinator, roll).await {
            tracing::debug!(%error, "sample job could not be enqueued");
        }
        let pause = PAUSE_MAX.mul_f64(rand::random());
        tokio::time::sleep(pause).await;
    }
}

async fn enqueue(coordinator: &Coordinator, roll: u32) -> Result<()> {
    let (job_type, queue) = match roll {
        0..5 => ("demo.fast", "demo"),
        5..7 => ("demo.slow", "demo-reports"),
        7..9 => ("demo.flaky", "demo"),
        _ => ("demo.doomed", "demo"),
    };
    let mut spec = JobSpec::new(JobType::new(job_type)?);
    spec.template.queue = Some(QueueName::new(queue)?);
    spec.template.args = Json::of(&serde_json::json!({ "roll": roll })).ok();
    spec.template.priority = Some(if roll == 0 { Priority::High } else { Priority::Normal });
    spec.template.timeout = Some(Duration::from_secs(30));
    // Slow enough to watch a retry.
    spec.template.retry_policy = Some(RetryPolicy { initial_delay: Duration::from_secs(3), ..RetryPolicy::default() });
    coordinator.enqueue(spec).await.map(|_| ())
}
