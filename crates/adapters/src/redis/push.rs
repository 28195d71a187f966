//! Appends entries and publishes their bells.
//!
//! An entry and its bell go in one pipeline, the bell last: its receiver finds the entry. An ordinary queue has a bell
//! of its own, a topic of the queue's name. Jobs' channels share one, whose message carries the ids of all jobs of the
//! batch: the owner of a job is unknown here, and a message to each of thousands of channels would cost more than the
//! entries.

use std::collections::HashSet;

use bytes::Bytes;
use convoke_core::jobs::channels::{Channels, JobChannel};
use convoke_core::jobs::wire::{self, Bell, V1};
use convoke_core::{Error, JobId, Result};
use redis::{Pipeline, Value};

use super::commands::Commands;
use super::entry;
use super::failure::{Intent, failure};

/// Bounds one pipeline, so that requests of other tasks do not wait for all of a large batch.
const ENTRIES_MAX: usize = 1_000;
const BYTES_MAX: usize = 4 << 20;

pub(super) async fn push(commands: &Commands, channels: &Channels, entries: &[(String, Bytes)]) -> Result<()> {
    let mut rest = entries;
    while !rest.is_empty() {
        let (part, more) = rest.split_at(portion(rest));
        let pipeline = append(channels, part);
        let replies = commands.pipe(Intent::Change, &pipeline).await?;
        check(commands, replies, part.len() < entries.len())?;
        rest = more;
    }
    Ok(())
}

/// Returns how many of the entries go together: at least one, however large.
fn portion(entries: &[(String, Bytes)]) -> usize {
    let mut bytes = 0;
    let fits = entries.iter().take(ENTRIES_MAX).take_while(|(_, body)| {
        bytes += body.len();
        bytes <= BYTES_MAX
    });
    fits.count().max(1)
}

fn append(channels: &Channels, entries: &[(String, Bytes)]) -> Pipeline {
    let mut pipeline = Pipeline::with_capacity(entries.len() + 1);
    let (poison, mut rung) = (channels.poison(), HashSet::new());
    let (mut status, mut logs) = (Vec::<JobId>::new(), Vec::<JobId>::new());
    for (queue, body) in entries {
        pipeline.add_command(entry::add(queue, body, (*queue == poison).then_some(entry::POISON_KEPT)));
        match channels.job_of(queue) {
            // Consecutive entries of one job are common; a duplicate costs only one comparison.
            Some((job, JobChannel::Status)) if status.last() != Some(&job) => status.push(job),
            Some((job, JobChannel::Logs)) if logs.last() != Some(&job) => logs.push(job),
            Some(_) => {}
            None => {
                rung.insert(queue.as_str());
            }
        }
    }
    if !status.is_empty() || !logs.is_empty() {
        let bell = Bell { v: V1, jobs: status, logs: Some(logs) };
        pipeline.cmd("PUBLISH").arg(channels.bell()).arg(&wire::encode(&bell)[..]);
    }
    for queue in rung {
        pipeline.cmd("PUBLISH").arg(queue).arg("");
    }
    pipeline
}

/// Returns the first rejection, if any. If other entries of the batch were accepted, the error is `Unknown`.
pub(super) fn check(commands: &Commands, replies: Vec<Value>, is_part: bool) -> Result<()> {
    let count = replies.len();
    let mut refusals = replies.into_iter().filter_map(|reply| reply.extract_error().err()).peekable();
    if refusals.peek().is_none() {
        return Ok(());
    }
    let refusals: Vec<_> = refusals.collect();
    let all = refusals.len() == count && !is_part;
    match refusals.into_iter().next() {
        Some(error) if all => Err(failure(commands.what(), Intent::Change, error)),
        Some(error) => Err(Error::unknown(commands.what(), error)),
        None => Ok(()),
    }
}
