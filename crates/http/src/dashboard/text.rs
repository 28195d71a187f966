//! How numbers, times and states are written on pages.
//!
//! The types here write markup of their own and contain no text of users, so that templates insert them as they are.

use std::fmt::{self, Display};
use std::time::Duration;

use askama::filters::HtmlSafe;
use convoke_core::duration;
use convoke_core::jobs::{ExecutionStatus, LogLevel, Status};
use jiff::Timestamp;

/// Returns all digits of a number, in groups of three.
pub fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Returns the largest two units of a duration: `3h 5m`, `12s`, `250ms`.
pub fn span(duration: Duration) -> String {
    if duration < Duration::from_secs(1) {
        return format!("{}ms", duration.as_millis());
    }
    let seconds = duration.as_secs();
    let parts = [(seconds / 86_400, "d"), (seconds / 3_600 % 24, "h"), (seconds / 60 % 60, "m"), (seconds % 60, "s")];
    let first = parts.iter().position(|(number, _)| *number > 0).unwrap_or(3);
    let shown = parts[first..].iter().take(2).filter(|(number, _)| *number > 0);
    shown.map(|(number, unit)| format!("{number}{unit}")).collect::<Vec<_>>().join(" ")
}

/// Returns how long ago an instant was; clocks of two nodes may differ by a little, so it is never negative.
pub fn age(since: Timestamp, now: Timestamp) -> Duration {
    now.duration_since(since).try_into().unwrap_or_default()
}

/// Returns a duration as it is typed: `1h30m`.
pub fn typed(duration: Duration) -> String {
    duration::format(duration)
}

/// Encodes a text as one segment of a path, or as a value of a query.
pub fn encode(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
        encoded
    })
}

/// An instant, written as its age; the script shows it in the viewer's zone as well.
#[derive(Debug, Clone, Copy)]
pub struct When {
    at: Timestamp,
    now: Timestamp,
}

impl When {
    pub fn new(at: Timestamp, now: Timestamp) -> Self {
        When { at, now }
    }
}

impl Display for When {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, ms) = (self.at, self.at.as_millisecond());
        let text = match (at > self.now, span(age(at, self.now)), span(age(self.now, at))) {
            (true, _, ahead) => format!("in {ahead}"),
            (false, past, _) => format!("{past} ago"),
        };
        write!(f, r#"<time datetime="{at:.3}" data-ms="{ms}" data-relative title="{at:.3}">{text}</time>"#)
    }
}

impl HtmlSafe for When {}

/// An instant in UTC, which the script writes in the viewer's zone.
#[derive(Debug, Clone, Copy)]
pub struct Local(pub Timestamp);

impl Display for Local {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (at, ms) = (self.0, self.0.as_millisecond());
        let text = at.strftime("%Y-%m-%d %H:%M:%S UTC");
        write!(f, r#"<time datetime="{at:.3}" data-ms="{ms}">{text}</time>"#)
    }
}

impl HtmlSafe for Local {}

/// The state of a job or of a run: a sign, a word and a colour.
#[derive(Debug, Clone, Copy)]
pub struct Mark {
    sign: &'static str,
    pub word: &'static str,
    class: &'static str,
}

impl Mark {
    pub fn new(sign: &'static str, word: &'static str, class: &'static str) -> Self {
        Mark { sign, word, class }
    }

    pub fn sign(&self) -> &'static str {
        self.sign
    }

    pub fn class(&self) -> &'static str {
        self.class
    }
}

impl Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Mark { sign, word, class } = self;
        write!(f, r#"<span class="mark {class}"><span class="sign" aria-hidden="true">{sign}</span>{word}</span>"#)
    }
}

impl HtmlSafe for Mark {}

impl From<Status> for Mark {
    fn from(status: Status) -> Self {
        let (sign, class) = match status {
            Status::Created => ("·", "quiet"),
            Status::Pending => ("○", "quiet"),
            Status::Scheduled => ("◷", "quiet"),
            Status::Dispatched => ("→", "busy"),
            Status::Running => ("▶", "busy"),
            Status::Completed => ("✓", "good"),
            Status::Failed => ("✕", "bad"),
            Status::TimedOut => ("⊗", "bad"),
            Status::Cancelled => ("⊘", "quiet"),
        };
        Mark { sign, word: status.as_str(), class }
    }
}

impl From<ExecutionStatus> for Mark {
    fn from(status: ExecutionStatus) -> Self {
        let (sign, word, class) = match status {
            ExecutionStatus::Dispatched => ("→", "dispatched", "busy"),
            ExecutionStatus::Running => ("▶", "running", "busy"),
            ExecutionStatus::Completed => ("✓", "completed", "good"),
            ExecutionStatus::Failed => ("✕", "failed", "bad"),
            ExecutionStatus::TimedOut => ("⊗", "timedOut", "bad"),
            ExecutionStatus::Cancelled => ("⊘", "cancelled", "quiet"),
            ExecutionStatus::Lost => ("!", "lost", "warn"),
            ExecutionStatus::Released => ("↩", "released", "quiet"),
        };
        Mark { sign, word, class }
    }
}

/// Returns the name of a log level, as the API writes it.
pub fn level(level: LogLevel) -> &'static str {
    match level {
        LogLevel::Trace => "trace",
        LogLevel::Debug => "debug",
        LogLevel::Info => "info",
        LogLevel::Warn => "warn",
        LogLevel::Error => "error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_large_number_keeps_all_its_digits() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1_000), "1,000");
        assert_eq!(count(9_007_199_254_740_993), "9,007,199,254,740,993");
        assert_eq!(count(u64::MAX), "18,446,744,073,709,551,615");
    }

    #[test]
    fn a_span_has_its_two_largest_units() {
        let spans = [(0, "0ms"), (250, "250ms"), (12_000, "12s"), (61_000, "1m 1s"), (3_600_000, "1h")];
        for (ms, text) in spans.into_iter().chain([(11_100_000, "3h 5m"), (90_061_000, "1d 1h")]) {
            assert_eq!(span(Duration::from_millis(ms)), text);
        }
    }

    #[test]
    fn a_name_becomes_one_segment() {
        assert_eq!(encode("a/b c?é\"<"), "a%2Fb%20c%3F%C3%A9%22%3C");
    }

    #[test]
    fn an_instant_is_shown_by_its_age_in_either_direction() {
        let at: Timestamp = "2026-11-18T13:50:41.25Z".parse().expect("an instant");
        let shown = When::new(at, at + Duration::from_secs(70)).to_string();
        assert!(shown.contains(">1m 10s ago<") && shown.contains(r#"datetime="2026-11-18T13:50:41.250Z""#), "{shown}");
        assert!(When::new(at, at - Duration::from_secs(5)).to_string().contains(">in 5s<"));
    }
}
