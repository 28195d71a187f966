//! Reads any bytes as the body of a request, for a fuzzer and for the tests that share its inputs.
//!
//! The first byte selects the type, the rest is the body. A body is read as a handler reads it, up to the point at which it
//! would be given to the store. It is rejected with an error that names a field, or accepted; and a job that was accepted is
//! the same after it was stored as a document.

use convoke_core::JobId;
use convoke_core::jobs::link::{Heartbeat, Poll, Register, Report};
use convoke_core::jobs::{JobDefinition, JobSpec, RetrySettings, ScheduleSpec};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use uuid::Uuid;

use crate::body::from_slice;
use crate::bulk::Bulk;
use crate::dead_letters::Selection;
use crate::gateway::Leave;
use crate::jobs::Batch;
use crate::queues::Patch;

/// Reads the input as one body. Panics if a promise about bodies is broken.
pub fn play_body(input: &[u8]) {
    let Some((kind, body)) = input.split_first() else { return };
    let now = Timestamp::UNIX_EPOCH;
    match kind {
        b'j' => read::<JobSpec>(body, |spec| enqueue(spec, now)),
        b'b' => read::<Batch>(body, |batch| {
            batch.jobs.within("jobs").into_iter().flatten().for_each(|spec| enqueue(spec, now));
        }),
        b'B' => read::<Bulk>(body, |bulk| drop(bulk.filter.filter.at(now).query(now))),
        b's' => read::<ScheduleSpec>(body, |spec| {
            spec.warnings();
            let name = "s".parse().expect("a name");
            if let Ok(schedule) = spec.into_schedule(name, now) {
                assert!(schedule.next_run_at.is_none_or(|next| next >= now), "{schedule:?}");
            }
        }),
        b'r' => read::<Register>(body, |register| drop(register.check())),
        b'p' => read::<Poll>(body, drop),
        b'R' => read::<Report>(body, |report| {
            for event in report.events {
                let is_valid = event.check().is_ok();
                let cut = event.cut_to_limits();
                assert!(!is_valid || cut.check().is_ok(), "{cut:?}");
            }
        }),
        b'h' => read::<Heartbeat>(body, |heartbeat| drop(heartbeat.check())),
        b'l' => read::<Leave>(body, drop),
        b'd' => read::<Selection>(body, |selection| drop(selection.which())),
        b'q' => read::<Patch>(body, drop),
        _ => {}
    }
}

fn read<T: DeserializeOwned>(body: &[u8], accepted: impl FnOnce(T)) {
    match from_slice::<T>(body) {
        Ok(value) => accepted(value),
        Err(error) => assert!(error.field.as_ref().is_some_and(|field| !field.is_empty()), "{error:?} names no field"),
    }
}

fn enqueue(spec: JobSpec, now: Timestamp) {
    let Ok(job) = spec.into_job(JobId(Uuid::from_u128(1)), now, &RetrySettings::default()) else { return };
    let document = job.definition.document();
    let stored = JobDefinition::from_document(&document, job.definition.args.clone());
    assert_eq!(stored.expect("a document of ours can be read"), job.definition, "{document}");
    job.into_stored();
}

#[test]
fn any_bytes_as_a_body_are_accepted_or_rejected_by_a_field() {
    let changed = convoke_testkit::scale::Scaled { quick: 3_000, full: 60_000 };
    convoke_testkit::fuzz::replay("bodies", changed.get(), play_body);
}
