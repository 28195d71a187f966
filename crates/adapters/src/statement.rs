//! SQL whose numbers come from `core`.
//!
//! A statement names a code, a limit or another constant in braces: `where state = {pending}`. The names are replaced
//! at its first use, so that a number is defined in one place. An unknown name is a bug of the statement and panics.

use std::collections::HashMap;
use std::ops::Deref;
use std::sync::LazyLock;

use convoke_core::duration::DURATION_MAX;
use convoke_core::ids::DEFAULT_QUEUE;
use convoke_core::jobs::dispatch::{HEADS_READ, LEAD_MAX_US};
use convoke_core::jobs::priority::HEAD_START;
use convoke_core::jobs::template::{CORRELATION_KEY, TAG_BYTES_MAX, TAG_KEY, TAGS_MAX};
use convoke_core::jobs::{ExecutionStatus, Ownership, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, JSON_DEPTH_MAX, NAME_BYTES_MAX, QUEUES_MAX, RETRIES_MAX};

/// A statement, built when it is first used.
pub(crate) struct Statement(LazyLock<String, fn() -> String>);

impl Statement {
    /// `build` returns the text, usually by [`build`] or [`compose`].
    pub(crate) const fn new(build: fn() -> String) -> Self {
        Statement(LazyLock::new(build))
    }
}

impl Deref for Statement {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

/// A statement, built when it is first used. It lives as long as the program.
///
/// One of up to three lines stands beside its verb: `sql!("select … where state = {pending}")`. A longer one has a file of its
/// own, named after the verb: `sql!(include_str!("sql/insert.sql"))`. Further names come with their values, which may be
/// fragments: `sql!("{run} where r.worker = $1", run = RUN)`.
macro_rules! sql {
    ($text:expr $(, $name:ident = $value:expr)* $(,)?) => {{
        static STATEMENT: $crate::statement::Statement =
            $crate::statement::Statement::new(|| $crate::statement::compose($text, &[$((stringify!($name), $value)),*]));
        &**{ &STATEMENT }
    }};
    // The same, with the names as texts.
    ($text:expr, [$(($name:literal, $value:expr)),* $(,)?]) => {{
        static STATEMENT: $crate::statement::Statement =
            $crate::statement::Statement::new(|| $crate::statement::compose($text, &[$(($name, $value)),*]));
        &**{ &STATEMENT }
    }};
}
pub(crate) use sql;

/// A statement of `text` with further names replaced. The constants in `parts` are replaced too.
pub(crate) fn compose(text: &str, parts: &[(&'static str, &str)]) -> String {
    build_with(text, &parts.iter().map(|(name, part)| (*name, build(part))).collect::<HashMap<_, _>>())
}

/// Replaces the names in braces with their values. Braces around anything but a name stay as they are.
pub(crate) fn build(text: &str) -> String {
    build_with(text, &HashMap::new())
}

/// Like [`build`], with the values of further names.
pub(crate) fn build_with(text: &str, more: &HashMap<&str, String>) -> String {
    let mut built = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(open) = rest.find('{') {
        built.push_str(&rest[..open]);
        let behind = &rest[open + 1..];
        let name = behind.split('}').next().filter(|name| is_name(name));
        let Some(name) = name else {
            built.push('{');
            rest = behind;
            continue;
        };
        match more.get(name).or_else(|| CONSTANTS.get(name)) {
            Some(value) => built.push_str(value),
            None => panic!("the statement names {{{name}}}, which is no constant: {text}"),
        }
        rest = &behind[name.len() + 1..];
    }
    built.push_str(rest);
    built
}

fn is_name(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_')
}

/// The constants of `core` by their names in statements.
static CONSTANTS: LazyLock<HashMap<&'static str, String>> = LazyLock::new(|| {
    let codes = |statuses: &[Status]| statuses.iter().map(|status| status.code().to_string()).collect::<Vec<_>>();
    let [in_flight, live, dead] = [Status::is_in_flight, Status::is_live, Status::is_dead_letter]
        .map(|is: fn(Status) -> bool| Status::ALL.into_iter().filter(|status| is(*status)).collect::<Vec<_>>());
    let first_ended = Status::ALL.into_iter().find(|status| !status.is_live());
    HashMap::from([
        ("pending", Status::Pending.code().to_string()),
        ("scheduled", Status::Scheduled.code().to_string()),
        ("dispatched", Status::Dispatched.code().to_string()),
        ("running", Status::Running.code().to_string()),
        ("completed", Status::Completed.code().to_string()),
        ("failed", Status::Failed.code().to_string()),
        ("timed_out", Status::TimedOut.code().to_string()),
        ("cancelled", Status::Cancelled.code().to_string()),
        // Lists for `in (…)`.
        ("in_flight", codes(&in_flight).join(", ")),
        ("live", codes(&live).join(", ")),
        ("dead_letter", codes(&dead).join(", ")),
        // A job whose code is lower is live.
        ("first_ended", first_ended.map(Status::code).unwrap_or_default().to_string()),
        ("unowned", Ownership::Unowned.code().to_string()),
        ("owned", Ownership::Owned.code().to_string()),
        ("handing_off", Ownership::HandingOff.code().to_string()),
        ("orphan_pending", Ownership::OrphanPending.code().to_string()),
        ("run_dispatched", ExecutionStatus::Dispatched.code().to_string()),
        ("run_running", ExecutionStatus::Running.code().to_string()),
        ("run_completed", ExecutionStatus::Completed.code().to_string()),
        ("run_failed", ExecutionStatus::Failed.code().to_string()),
        ("run_timed_out", ExecutionStatus::TimedOut.code().to_string()),
        ("run_cancelled", ExecutionStatus::Cancelled.code().to_string()),
        ("head_start_us", HEAD_START.as_micros().to_string()),
        ("lead_max_us", LEAD_MAX_US.to_string()),
        ("heads_read", HEADS_READ.to_string()),
        ("queues_max", QUEUES_MAX.to_string()),
        ("name_bytes_max", NAME_BYTES_MAX.to_string()),
        ("args_bytes_max", ARGS_BYTES_MAX.to_string()),
        ("json_depth_max", JSON_DEPTH_MAX.to_string()),
        ("retries_max", RETRIES_MAX.to_string()),
        ("number_max", format!("{:e}", f64::MAX)),
        ("duration_max_us", DURATION_MAX.as_micros().to_string()),
        ("default_queue", DEFAULT_QUEUE.to_owned()),
        ("correlation_key", CORRELATION_KEY.to_owned()),
        ("tag_key", TAG_KEY.to_owned()),
        ("tags_max", TAGS_MAX.to_string()),
        ("tag_bytes_max", TAG_BYTES_MAX.to_string()),
    ])
});

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_replaced_and_other_braces_stay() {
        assert_eq!(
            build("where state in ({in_flight}) and state < {first_ended}"),
            "where state in (3, 4) and state < 5"
        );
        assert_eq!(build("'{}'::jsonb, '{1,2}', {"), "'{}'::jsonb, '{1,2}', {");
        let more = HashMap::from([("key", "j.type_id = $4".to_owned())]);
        assert_eq!(build_with("{key} and {pending}", &more), "j.type_id = $4 and 1");
    }

    #[test]
    #[should_panic = "no constant"]
    fn an_unknown_name_is_a_fault() {
        build("where state = {colour}");
    }

    /// The statements compare with one number.
    #[test]
    fn every_ended_status_has_a_higher_code_than_every_live_one() {
        let (live, ended): (Vec<_>, Vec<_>) = Status::ALL.into_iter().partition(|status| status.is_live());
        assert!(live.iter().max().map(|status| status.code()) < ended.iter().min().map(|status| status.code()));
    }
}
