//! Measures how long it takes to compute an assignment, and to encode it for the workers.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bytes::Bytes;
use convoke_core::ports::router::Peer;
use convoke_core::shards::coordinator::Output;
use convoke_core::shards::wire::{Message, Report};
use convoke_core::shards::{Coordinator, Settings, Start, Strategy, Version};
use convoke_core::{Epoch, ServiceName, WorkerId};

use crate::run::median;

/// Returns the median of several rebalances of `shards` over `workers`, each because one more joined, in milliseconds.
pub fn joining(strategy: Strategy, shards: u32, workers: u32, rounds: usize) -> Result<f64> {
    let settings = Settings { strategy, ..Settings::default() };
    let mut coordinator = Coordinator::new(settings, Start::Fresh, Version::of_term(Epoch(1)));
    let mut now = Duration::ZERO;
    for number in 0..workers {
        coordinator.on_message(&peer(number), register(number, shards)?, now, &mut Output::default());
    }
    run_until_quiet(&mut coordinator, &mut now);
    let mut took = Vec::with_capacity(rounds);
    for number in workers..workers + rounds as u32 {
        coordinator.on_message(&peer(number), register(number, shards)?, now, &mut Output::default());
        let began = Instant::now();
        let output = run_until_quiet(&mut coordinator, &mut now);
        took.push(began.elapsed().as_secs_f64() * 1_000.0);
        ensure!(!output.events.is_empty() && !output.sends.is_empty(), "nothing was rebalanced");
    }
    Ok(median(&mut took))
}

fn run_until_quiet(coordinator: &mut Coordinator, now: &mut Duration) -> Output {
    let mut output = Output::default();
    *now = coordinator.next_deadline();
    coordinator.tick(*now, &mut output);
    output
}

fn peer(number: u32) -> Peer {
    Peer(Bytes::copy_from_slice(&number.to_be_bytes()))
}

fn register(number: u32, shards: u32) -> Result<Message> {
    Ok(Message::Register(Report {
        service_name: ServiceName::new("bench")?,
        worker_id: WorkerId::new(format!("worker-{number:05}"))?,
        max_shard_count: shards,
        assigned_shards: None,
        version: None,
        handoff: None,
        beat: None,
        instance: None,
    }))
}
