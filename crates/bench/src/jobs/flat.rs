//! Measures whether a job costs more if many are pending.

use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::JobsArgs;
use super::enqueue;
use super::wire::Target;
use super::workers::Workers;
use crate::child::Children;
use crate::report::Report;

const FEW: u64 = 10_000;
const STUCK_AFTER: Duration = Duration::from_secs(120);

/// The cost of a job, enqueued and run, with this many others pending.
struct Cost {
    wall_us: f64,
    processor_us: Option<f64>,
}

/// Fills one queue, first a little, then a lot; each time some jobs are enqueued and as many are run.
pub async fn measure(args: &JobsArgs, target: &Target, children: &Children, report: &mut Report) -> Result<()> {
    let queue = "bench-flat";
    let sample = args.jobs() / 2;
    report.phase("cost of a job with few pending");
    enqueue::batches(target, queue, FEW.min(args.many()), args.batch).await?;
    let few = cost(args, target, children, queue, sample).await?;
    report.phase("filling the queue");
    enqueue::batches(target, queue, args.many().saturating_sub(FEW), args.batch).await?;
    report.phase("cost of a job with many pending");
    let many = cost(args, target, children, queue, sample).await?;
    report.add("fewPendingUs", &format!("cost of a job with {FEW} pending"), few.wall_us, "µs");
    report.add("manyPendingUs", &format!("cost of a job with {} pending", args.many()), many.wall_us, "µs");
    report.add("flatness", "  many to few", many.wall_us / few.wall_us, "×");
    if let (Some(few), Some(many)) = (few.processor_us, many.processor_us) {
        report.add("fewPendingCpuUs", "  server's processor time with few", few, "µs");
        report.add("manyPendingCpuUs", "  server's processor time with many", many, "µs");
        report.add("flatnessCpu", "  many to few", many / few, "×");
    }
    Ok(())
}

async fn cost(args: &JobsArgs, target: &Target, children: &Children, queue: &str, sample: u64) -> Result<Cost> {
    let used = || (!children.is_empty()).then(|| children.processor_time()).transpose();
    let before = used()?;
    let enqueued = enqueue::batches(target, queue, sample, args.batch).await?;
    let workers = Workers::start(target, queue, args.concurrency, |_| {})?;
    // From the first run on, so that the worker's registration is not counted.
    let begin = tokio::time::timeout(STUCK_AFTER, workers.tally.reaches(1)).await;
    let (first, started) = (workers.tally.begun(), Instant::now());
    let end = tokio::time::timeout(STUCK_AFTER, workers.tally.reaches(first + sample)).await;
    let drained = started.elapsed() / u32::try_from((workers.tally.begun() - first).max(1)).unwrap_or(u32::MAX);
    let begun = workers.tally.begun();
    workers.stop().await?;
    if begin.is_err() || end.is_err() {
        bail!("only {begun} of {sample} jobs were begun");
    }
    let after = used()?;
    let per_job = |time: Duration| time.as_secs_f64() * 1e6 / sample as f64;
    let processor_us = before.zip(after).map(|(before, after)| per_job(after.saturating_sub(before)));
    Ok(Cost { wall_us: per_job(enqueued.elapsed) + drained.as_secs_f64() * 1e6, processor_us })
}
