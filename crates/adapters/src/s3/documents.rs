//! The contents of the files: the published system's fields, and the names of its documentation (`leaseExpiresAt`,
//! `registeredAt`) beside them. Times are milliseconds since 1970.
//!
//! `state.json` has no `_expiresAt`, on purpose: s3db.js deletes a file whose `_expiresAt` has passed by its own clock,
//! and with this one the epoch would be lost. Files of other writers are read leniently: of a state only the epoch must
//! be valid, for without it the next one could be lower.

use std::time::Duration;

use convoke_core::ports::leases::TTL_MAX;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

/// The assumed duration of a state without one: the published default.
const LEASE_DEFAULT: Duration = Duration::from_secs(15);
/// JavaScript counts in floating point, which is exact only up to here.
pub(super) const EPOCH_MAX: u64 = 1 << 52;
/// No valid file is larger.
pub(super) const DOCUMENT_BYTES_MAX: u64 = 64 * 1024;

/// `state.json`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct State {
    pub leader_id: String,
    pub leader_pod: String,
    pub epoch: u64,
    pub lease_start: i64,
    pub lease_end: i64,
    pub lease_expires_at: i64,
    pub elected_by: String,
    pub elected_at: i64,
    /// The write that produced it; absent if another system wrote it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub write_id: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub resigned_at: Option<i64>,
}

impl State {
    /// Returns a new term.
    pub fn elected(candidate: &str, pod: &str, epoch: u64, now: i64, ttl: Duration, write_id: &str) -> Self {
        let state = State {
            leader_id: candidate.to_owned(),
            leader_pod: pod.to_owned(),
            epoch,
            lease_start: now,
            lease_end: now,
            lease_expires_at: now,
            elected_by: candidate.to_owned(),
            elected_at: now,
            write_id: None,
            resigned_at: None,
        };
        state.renewed(now, ttl, write_id)
    }

    /// Returns the same term, from now on.
    pub fn renewed(mut self, now: i64, ttl: Duration, write_id: &str) -> Self {
        let ends = now.saturating_add(ms(ttl));
        (self.lease_start, self.lease_end, self.lease_expires_at) = (now, ends, ends);
        self.write_id = Some(write_id.to_owned());
        self
    }

    /// Returns the same term, ended. Its end is the first millisecond of 1970: past by every clock, and not zero, which
    /// the published system takes for a lease without end.
    pub fn resigned(mut self, now: i64, write_id: &str) -> Self {
        (self.lease_end, self.lease_expires_at, self.resigned_at) = (1, 1, Some(now));
        self.write_id = Some(write_id.to_owned());
        self
    }

    /// Returns whether there is no holder, whatever the time: the term was resigned, or names no leader.
    pub fn is_ended(&self) -> bool {
        self.resigned_at.is_some() || self.lease_end <= self.lease_start || self.leader_id.is_empty()
    }

    /// Returns whether the published system wrote it: its writes have no id.
    pub fn is_foreign(&self) -> bool {
        self.write_id.is_none()
    }

    /// Returns its duration. Both ends are of one clock, so this is right even if the clock is not.
    pub fn ttl(&self) -> Duration {
        let ms = u64::try_from(self.lease_end.saturating_sub(self.lease_start)).unwrap_or(0);
        Duration::from_millis(ms).min(TTL_MAX)
    }

    /// The error describes the invalid part.
    pub fn parse(body: &[u8]) -> Result<Self, String> {
        let value: Value = serde_json::from_slice(body).map_err(|error| format!("it is not JSON: {error}"))?;
        let epoch = epoch(&value).ok_or_else(|| format!("expected an epoch from 0 to {EPOCH_MAX}"))?;
        let text = |name: &str| value.get(name).and_then(Value::as_str).map(str::to_owned);
        let elected_at = instant(&value, "electedAt").unwrap_or(0);
        let lease_start = instant(&value, "leaseStart").unwrap_or(elected_at);
        let lease_end = instant(&value, "leaseEnd").or_else(|| instant(&value, "leaseExpiresAt"));
        // Without a start, an end does not determine a duration.
        let (lease_start, lease_end) = match lease_end {
            Some(end) if lease_start > 0 => (lease_start, end),
            _ => (0, ms(LEASE_DEFAULT)),
        };
        Ok(State {
            leader_id: text("leaderId").unwrap_or_default(),
            leader_pod: text("leaderPod").unwrap_or_default(),
            epoch,
            lease_start,
            lease_end,
            lease_expires_at: lease_end,
            elected_by: text("electedBy").unwrap_or_default(),
            elected_at,
            write_id: text("writeId"),
            resigned_at: instant(&value, "resignedAt"),
        })
    }
}

/// Returns the epoch of `state.json` or of `checkpoint.json`.
pub(super) fn epoch(value: &Value) -> Option<u64> {
    whole(value.get("epoch")?).and_then(|epoch| u64::try_from(epoch).ok()).filter(|epoch| *epoch <= EPOCH_MAX)
}

fn instant(value: &Value, name: &str) -> Option<i64> {
    value.get(name).and_then(whole)
}

/// Returns a number without a fraction, also if it is written as `1.0` or `1e3`.
fn whole(value: &Value) -> Option<i64> {
    const EXACT: f64 = (1_u64 << 53) as f64;
    let float = || value.as_f64().filter(|number| number.abs() <= EXACT && number.fract() == 0.0);
    value.as_i64().or_else(|| float().map(|number| number as i64))
}

pub(super) fn ms(ttl: Duration) -> i64 {
    i64::try_from(ttl.min(TTL_MAX).as_millis()).unwrap_or(i64::MAX)
}

/// `workers/worker={id}.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Worker<'a> {
    pub worker_id: &'a str,
    pub plugin_name: &'static str,
    pub pod: &'a str,
    pub last_heartbeat: i64,
    pub start_time: i64,
    pub registered_at: i64,
    pub namespace: &'a str,
    #[serde(rename = "_expiresAt")]
    pub expires_at: i64,
    /// The figures that a leader publishes about itself. s3db.js ignores them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub report: Option<Box<RawValue>>,
}

/// Returns the figures that a leader published in its file.
pub(super) fn report(body: &[u8]) -> Option<String> {
    #[derive(Deserialize)]
    struct Published {
        report: Box<RawValue>,
    }
    serde_json::from_slice::<Published>(body).ok().map(|found| found.report.get().to_owned())
}

/// `metadata.json`.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Metadata<'a> {
    pub namespace: &'a str,
    pub service_id: &'a str,
    pub created_at: i64,
    pub created_by: &'a str,
    pub plugins: [&'static str; 0],
}

/// Reads any bytes as a file of a bucket, for a fuzzer and for the tests that share its inputs. Panics if a promise about files is broken: a
/// state has an epoch in range and a duration in range, and reads the same once it is written.
#[doc(hidden)]
pub fn play_document(body: &[u8]) {
    let _ = report(body);
    let Ok(state) = State::parse(body) else { return };
    assert!(state.epoch <= EPOCH_MAX && state.ttl() <= TTL_MAX, "{state:?}");
    let written = [state.clone(), state.clone().renewed(1, TTL_MAX, "w"), state.resigned(i64::MAX, "w")];
    for state in written.iter().filter(|state| state.lease_start > 0) {
        let body = serde_json::to_vec(state).expect("a state is JSON");
        assert_eq!(State::parse(&body).as_ref(), Ok(state), "{}", String::from_utf8_lossy(&body));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<State, String> {
        State::parse(text.as_bytes())
    }

    #[test]
    fn any_bytes_as_a_file_are_a_state_in_range_or_rejected() {
        let changed = convoke_testkit::scale::Scaled { quick: 3_000, full: 60_000 };
        convoke_testkit::fuzz::replay("s3", changed.get(), play_document);
    }

    #[test]
    fn what_is_written_reads_the_same() {
        let state = State::elected("a", "pod", 7, 1_000, Duration::from_secs(15), "w");
        for state in
            [state.clone(), state.clone().renewed(5_000, Duration::from_secs(9), "x"), state.resigned(6_000, "y")]
        {
            let body = serde_json::to_vec(&state).expect("JSON");
            assert_eq!(State::parse(&body).expect("a state"), state);
        }
    }

    #[test]
    fn the_fields_are_those_of_the_published_system_and_of_its_documentation() {
        let state = State::elected("a", "pod", 7, 1_000, Duration::from_secs(15), "w");
        let value = serde_json::to_value(&state).expect("JSON");
        let expected = serde_json::json!({
            "leaderId": "a", "leaderPod": "pod", "epoch": 7, "leaseStart": 1_000, "leaseEnd": 16_000,
            "leaseExpiresAt": 16_000, "electedBy": "a", "electedAt": 1_000, "writeId": "w",
        });
        assert_eq!(value, expected, "and nothing that lets others delete it");
        let resigned = serde_json::to_value(state.resigned(2_000, "x")).expect("JSON");
        assert_eq!((&resigned["leaseEnd"], &resigned["epoch"]), (&1.into(), &7.into()));
    }

    #[test]
    fn a_state_of_others_holds_as_long_as_it_says() {
        let text = r#"{"leaderId":"w","leaderPod":"p","epoch":3,"leaseStart":1700000000000,"leaseEnd":1700000005000,
            "electedBy":"gcs-x","electedAt":1700000000000,"_expiresAt":1700000070000}"#;
        let state = parse(text).expect("a state");
        assert_eq!((state.ttl(), state.is_ended(), state.write_id.is_none()), (Duration::from_secs(5), false, true));
        let documented = parse(r#"{"leaderId":"w","epoch":3.0,"leaseExpiresAt":1700000005000}"#).expect("a state");
        assert_eq!((documented.epoch, documented.ttl(), documented.is_ended()), (3, LEASE_DEFAULT, false));
        let nobody = parse(r#"{"leaderId":null,"epoch":3}"#).expect("a state");
        assert!(nobody.is_ended());
        let backwards = parse(r#"{"leaderId":"w","epoch":3,"leaseStart":9,"leaseEnd":4}"#).expect("a state");
        assert!(backwards.is_ended());
        let absurd = parse(r#"{"leaderId":"w","epoch":3,"leaseStart":1,"leaseEnd":9e15}"#).expect("a state");
        assert_eq!(absurd.ttl(), TTL_MAX);
    }

    #[test]
    fn a_state_without_an_epoch_that_makes_sense_is_none() {
        for text in
            ["", "null", "[]", "{}", r#"{"epoch":-1}"#, r#"{"epoch":1.5}"#, r#"{"epoch":"7"}"#, r#"{"epoch":1e300}"#]
        {
            assert!(parse(text).is_err(), "{text}");
        }
        assert!(parse(&format!(r#"{{"epoch":{}}}"#, u64::MAX)).is_err());
    }
}
