//! Reads a queue of the bus for which all nodes compete: each entry goes to one of them.
//!
//! An entry is acknowledged after its work. A node that fails at it leaves the group, so that the entry is delivered
//! again, to it or to another node; entries of a dead node are taken over once it has been silent for as long as it
//! takes to declare a node dead.

use std::time::Duration;

use convoke_core::Result;
use convoke_core::mutant::mutant;
use convoke_core::ports::{Consumer, Delivery};
use tokio::sync::watch;
use tracing::debug;

use super::duty::{Consumes, DutyRun};
use super::node::COORDINATORS;

/// How many entries are processed at once, unless a duty sets another number.
pub const BATCH_MAX: usize = 64;
const RETRY_AFTER: Duration = Duration::from_millis(250);

/// How a duty reads its entries.
pub struct Intake {
    pub batch_max: usize,
    /// No entry is read while this is false.
    pub open: Option<watch::Receiver<bool>>,
}

/// Processes the entries of the duty's queue until it must stop.
pub async fn compete<F: Future<Output = Result<()>>>(
    mut run: DutyRun<Consumes>,
    mut intake: Intake,
    work: impl Fn(Vec<Delivery>) -> F,
) {
    let queue = run.queue();
    while !run.must_stop() {
        // A new name each time: entries left under an older one are taken over.
        let name = format!("{}.{}", run.node().id, run.node().unique_word());
        let served = match run.node().bus().consumer(&queue, COORDINATORS, &name).await {
            Ok(consumer) => {
                let stop = run.stop();
                let served = tokio::select! {
                    biased;
                    () = stop.due() => Ok(()),
                    served = serve(&mut run, &*consumer, &mut intake, &work) => served,
                };
                if let Err(error) = consumer.leave().await {
                    debug!(%error, queue, "leaving a consumer group failed: another node takes over what is pending");
                }
                served
            }
            Err(error) => Err(error),
        };
        if let Err(error) = served {
            run.failed(run.name, &error);
            run.wait(tokio::time::sleep(RETRY_AFTER.mul_f64(1.0 + run.node().fraction()))).await;
        }
    }
}

async fn serve<F: Future<Output = Result<()>>>(
    run: &mut DutyRun<Consumes>,
    consumer: &dyn Consumer,
    Intake { batch_max, open }: &mut Intake,
    work: &impl Fn(Vec<Delivery>) -> F,
) -> Result<()> {
    let idle = run.node().settings.cluster.dead_node_timeout;
    let mut look = tokio::time::interval(idle);
    loop {
        let taken = run.wait(take(consumer, *batch_max, open, &mut look, idle)).await;
        let Some(taken) = taken else { return Ok(()) };
        let taken = taken?;
        if taken.is_empty() {
            continue;
        }
        let ids: Vec<String> = taken.iter().map(|delivery| delivery.id.clone()).collect();
        if mutant("acknowledge after the commit") {
            consumer.ack(&ids).await?;
        }
        work(taken).await?;
        consumer.ack(&ids).await?;
    }
}

/// Waits for entries, or for the time to take over those of dead nodes. Returns `None` if the intake is closed
/// meanwhile.
async fn take(
    consumer: &dyn Consumer,
    batch_max: usize,
    open: &mut Option<watch::Receiver<bool>>,
    look: &mut tokio::time::Interval,
    idle: Duration,
) -> Result<Vec<Delivery>> {
    turns(open, true).await;
    tokio::select! {
        biased;
        () = turns(open, false) => Ok(Vec::new()),
        // Before the entries: those that come without end must not keep it from what dead nodes left.
        _ = look.tick() => consumer.take_over(idle, batch_max).await,
        taken = consumer.take(batch_max) => taken,
    }
}

/// Waits until an intake is open or closed, as wanted. One without a switch is always open.
async fn turns(open: &mut Option<watch::Receiver<bool>>, wanted: bool) {
    let turned = match open {
        Some(open) => open.wait_for(|open| *open == wanted).await.is_ok(),
        None => wanted,
    };
    if !turned {
        std::future::pending().await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use bytes::Bytes;
    use convoke_core::Error;
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::jobs::duty::Duty;
    use crate::jobs::node::{Node, fixture};

    async fn run_for(duty: Duty, node: Arc<Node>, time: Duration) {
        let stop = CancellationToken::new();
        let stopping = async {
            tokio::time::sleep(time).await;
            stop.cancel();
        };
        tokio::join!(duty.keep_running(node, stop.clone()), stopping);
    }

    async fn push(node: &Node) {
        let entry = (node.channels.handoff(), Bytes::from_static(b"entry"));
        node.bus().push(vec![entry]).await.expect("memory is always there");
    }

    #[tokio::test(start_paused = true)]
    async fn an_entry_is_given_again_until_its_work_is_done() {
        static TRIES: AtomicUsize = AtomicUsize::new(0);
        async fn consume(_: Arc<Node>, run: DutyRun<Consumes>) -> Result<()> {
            let work = |deliveries: Vec<Delivery>| async move {
                assert_eq!(deliveries.len(), 1);
                match TRIES.fetch_add(1, Ordering::SeqCst) {
                    0 | 1 => Err(Error::unavailable("store", "away")),
                    _ => Ok(()),
                }
            };
            compete(run, Intake { batch_max: BATCH_MAX, open: None }, work).await;
            Ok(())
        }
        let node = fixture::node().await;
        push(&node).await;
        let duty = Duty::competing("consume", Consumes("job.handoff"), consume, "", "");
        run_for(duty, node, Duration::from_secs(300)).await;
        assert_eq!(TRIES.load(Ordering::SeqCst), 3);
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_is_taken_while_the_intake_is_closed() {
        static TAKEN: AtomicUsize = AtomicUsize::new(0);
        async fn consume(node: Arc<Node>, run: DutyRun<Consumes>) -> Result<()> {
            let work = |deliveries: Vec<Delivery>| async move {
                TAKEN.fetch_add(deliveries.len(), Ordering::SeqCst);
                Ok(())
            };
            let open = Some(node.ownership.peers.has_room());
            compete(run, Intake { batch_max: BATCH_MAX, open }, work).await;
            Ok(())
        }
        let node = fixture::node().await;
        node.ownership.peers.set_room(false);
        push(&node).await;
        let duty = || Duty::competing("consume", Consumes("job.handoff"), consume, "", "");
        run_for(duty(), node.clone(), Duration::from_secs(300)).await;
        assert_eq!(TAKEN.load(Ordering::SeqCst), 0);
        let opening = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            node.ownership.peers.set_room(true);
        };
        tokio::join!(run_for(duty(), node.clone(), Duration::from_secs(2)), opening);
        assert_eq!(TAKEN.load(Ordering::SeqCst), 1);
    }
}
