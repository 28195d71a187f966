//! The power of the machine goes at any moment: what was acknowledged is on the disk.
//!
//! All processes are killed, and of their files only what was synced is left ([`disk`]): unsynced writes are dropped, and so
//! are the new names of files whose directory was not synced. Then they start again on that.

mod disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use convoke_testkit::invariants::{Observations, Seen, j1_acknowledged, jobs_hold};
use convoke_testkit::process::{Durability, GatewayWorker, Node, Postgres, wait_for_value};
use convoke_testkit::scale::Scaled;
use rand::SeedableRng;
use rand::rngs::StdRng;

use super::crash::{ended, moment, open_jobs, plan, produce};
use super::server;
use disk::Disk;

const CUTS: Scaled<usize> = Scaled { quick: 4, full: 16 };
const SEED: u64 = 18;

/// A node, the server of its store if it has one, and the disk below.
struct Machine {
    node: Node,
    postgres: Option<Postgres>,
    disk: Disk,
}

impl Machine {
    /// A node with a SQLite file.
    async fn with_sqlite(change: impl FnOnce(Vec<(String, String)>) -> Vec<(String, String)>) -> Machine {
        let mut builder = server();
        let root = builder.directory().join("disk");
        std::fs::create_dir(&root).expect("a directory");
        let disk = Disk::new(&root);
        for (name, value) in change(disk.environment()) {
            builder = builder.env(&name, &value);
        }
        let store = format!("sqlite:{}", root.join("convoke.db").display());
        Machine { node: builder.store(&store).start().await, postgres: None, disk }
    }

    /// A node and the PostgreSQL that it uses.
    async fn with_postgres(durability: Durability) -> Machine {
        let mut disk = None;
        let postgres = Postgres::start_with(durability, |data| {
            let made = Disk::new(data);
            let environment = made.environment();
            disk = Some(made);
            environment
        });
        let postgres = postgres.await;
        let node = server().store(&postgres.url()).start().await;
        Machine { node, postgres: Some(postgres), disk: disk.expect("a disk") }
    }

    /// Cuts the power, and turns it on again.
    async fn cut_power(&mut self) {
        let Machine { node, postgres, disk } = self;
        if let Some(postgres) = postgres {
            postgres.kill_all().await;
        }
        node.kill().await;
        disk.cut();
        if let Some(postgres) = postgres {
            postgres.start_again().await;
        }
        node.restart().await;
    }
}

/// Jobs are enqueued and run while the power goes again and again.
async fn nothing_acknowledged_is_lost(mut machine: Machine) {
    let observations = Observations::default();
    let stop = Arc::new(AtomicBool::new(false));
    let producers: Vec<_> = [1, 1, 5]
        .map(|batch| tokio::spawn(produce(machine.node.http().clone(), observations.clone(), batch, stop.clone())))
        .into();
    let mut workers = Vec::new();
    for id in ["w-1", "w-2"] {
        workers.push(GatewayWorker::start(machine.node.http(), &observations, plan(id)).await);
    }
    let mut dice = StdRng::seed_from_u64(SEED);
    for round in 0..CUTS.get() {
        moment(&observations, round, &mut dice).await;
        machine.cut_power().await;
    }
    let before = observations.entries();
    observations.until(|now| ended(now) > ended(&before) + 20).await;
    stop.store(true, Ordering::Relaxed);
    for producer in producers {
        producer.await.expect("a producer ends");
    }
    wait_for_value("jobs that are not over", 0, || open_jobs(machine.node.http())).await;
    let seen = Seen::of(&machine.node).await;
    assert_eq!(seen.jobs.len(), observations.entries().acknowledged.len(), "every job that exists was acknowledged");
    jobs_hold(&observations, &seen);
}

/// The power goes once, and the disk has kept nothing: the check must find that.
async fn the_loss_is_found(mut machine: Machine) {
    let observations = Observations::default();
    let stop = Arc::new(AtomicBool::new(false));
    let producer = tokio::spawn(produce(machine.node.http().clone(), observations.clone(), 1, stop.clone()));
    observations.until(|now| now.acknowledged.len() > 20).await;
    stop.store(true, Ordering::Relaxed);
    producer.await.expect("a producer ends");
    machine.cut_power().await;
    let lost = j1_acknowledged::check(&observations.entries(), &Seen::of(&machine.node).await);
    assert!(!lost.is_empty(), "all was acknowledged and none of it synced, and nobody misses it");
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_with_the_power_of_sqlite() {
    nothing_acknowledged_is_lost(Machine::with_sqlite(|environment| environment).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_acknowledged_is_lost_with_the_power_of_postgresql() {
    nothing_acknowledged_is_lost(Machine::with_postgres(Durability::Durable).await).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_check_fails_if_syncs_are_ignored() {
    let ignoring = |mut environment: Vec<(String, String)>| {
        environment.push(("POWER_IGNORES_SYNCS".into(), "1".into()));
        environment
    };
    the_loss_is_found(Machine::with_sqlite(ignoring).await).await;
    // The server has `fsync=off`.
    the_loss_is_found(Machine::with_postgres(Durability::Fast).await).await;
}
