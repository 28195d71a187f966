//! The fields and sizes that an event may have. The limits are here once, for both ways on which events come.
//!
//! A worker of a gateway receives the reason of a rejection and corrects itself: [`Event::check`]. Nobody waits for a
//! reply on the bus: there an event is made to fit, [`Event::cut_to_limits`].

use super::{Event, EventKind};
use crate::error::Invalid;
use crate::limits::{ERROR_BYTES_MAX, LOG_LINE_BYTES_MAX, PROGRESS_MESSAGE_BYTES_MAX, RESULT_BYTES_MAX};

const PERCENT_MAX: u8 = 100;
/// Stores keep the number as a signed one.
const SEQ_MAX: u64 = i64::MAX as u64;

impl EventKind {
    const fn message_bytes_max(self) -> usize {
        if matches!(self, EventKind::Log) { LOG_LINE_BYTES_MAX } else { PROGRESS_MESSAGE_BYTES_MAX }
    }
}

impl Event {
    /// Checks that the event has only the fields of its kind, those that its kind needs, and that none is too large.
    pub fn check(&self) -> Result<(), Invalid> {
        use EventKind::*;
        let kind = self.kind;
        let fields = [
            ("startedAt", self.started_at.is_some(), kind.is_end()),
            ("percent", self.percent.is_some(), kind == Progress),
            ("message", self.message.is_some(), matches!(kind, Log | Progress | Cancelled)),
            ("level", self.level.is_some(), kind == Log),
            ("seq", self.seq.is_some(), kind == Log),
            ("result", self.result.is_some(), kind == Completed),
            ("error", self.error.is_some(), matches!(kind, Failed | TimedOut)),
            ("retry", self.retry.is_some(), kind == Failed),
        ];
        if let Some((field, ..)) = fields.iter().find(|(_, given, fits)| *given && !fits) {
            return Err(Invalid::new(*field, format!("does not go with kind {kind:?}")));
        }
        let needed = match kind {
            Progress if self.percent.is_none() => Some("percent"),
            Log if self.message.is_none() => Some("message"),
            Failed if self.error.is_none() => Some("error"),
            _ => None,
        };
        if let Some(field) = needed {
            return Err(Invalid::new(field, format!("expected with kind {kind:?}")));
        }
        if self.percent.is_some_and(|percent| percent > PERCENT_MAX) {
            return Err(Invalid::new("percent", "expected 0 to 100"));
        }
        if self.seq.is_some_and(|seq| seq > SEQ_MAX) {
            return Err(Invalid::new("seq", format!("expected at most {SEQ_MAX}")));
        }
        for (field, text, bytes_max) in
            [("message", &self.message, kind.message_bytes_max()), ("error", &self.error, ERROR_BYTES_MAX)]
        {
            if let Some(text) = text.as_ref().filter(|text| text.len() > bytes_max) {
                let message = format!("expected at most {bytes_max} bytes, got {}", text.len());
                return Err(Invalid::too_large(field, message));
            }
        }
        self.result.as_ref().map_or(Ok(()), |result| result.check("result", RESULT_BYTES_MAX))
    }

    /// Cuts texts and numbers that are too large. A run whose result is invalid has failed, and would fail again.
    pub fn cut_to_limits(mut self) -> Self {
        let result = self.result.as_ref().filter(|_| self.kind == EventKind::Completed);
        if let Some(Err(invalid)) = result.map(|result| result.check("result", RESULT_BYTES_MAX)) {
            let failed = Event::new(self.job_id, self.execution_id, EventKind::Failed);
            let (at, started_at, error) = (self.at, self.started_at, Some(invalid.to_string()));
            self = Event { at, started_at, error, retry: Some(false), ..failed };
        }
        self.percent = self.percent.map(|percent| percent.min(PERCENT_MAX));
        self.seq = self.seq.map(|seq| seq.min(SEQ_MAX));
        let message_bytes_max = self.kind.message_bytes_max();
        self.message = self.message.map(|message| cut(message, message_bytes_max));
        self.error = self.error.map(|error| cut(error, ERROR_BYTES_MAX));
        self
    }
}

fn cut(mut text: String, bytes_max: usize) -> String {
    text.truncate(text.floor_char_boundary(bytes_max));
    text
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{ExecutionId, JobId};
    use crate::json::Json;

    fn event(kind: EventKind) -> Event {
        Event::new(JobId(Uuid::from_u128(1)), ExecutionId(Uuid::from_u128(2)), kind)
    }

    #[test]
    fn what_is_too_long_is_cut_between_characters() {
        assert_eq!(cut("häh".into(), 2), "h");
        assert_eq!(cut("häh".into(), 3), "hä");
        assert_eq!(cut("häh".into(), 99), "häh");
    }

    #[test]
    fn what_was_cut_passes_the_check() {
        let long = Some("ä".repeat(LOG_LINE_BYTES_MAX));
        let events = [
            Event { message: long.clone(), seq: Some(u64::MAX), ..event(EventKind::Log) },
            Event { message: long.clone(), percent: Some(255), ..event(EventKind::Progress) },
            Event { message: long.clone(), ..event(EventKind::Cancelled) },
            Event { error: long.clone(), ..event(EventKind::Failed) },
            Event { error: long, ..event(EventKind::TimedOut) },
        ];
        for event in events {
            event.check().expect_err("too large");
            let kind = event.kind;
            let event = event.cut_to_limits();
            event.check().expect("cut");
            assert_eq!(event.kind, kind);
        }
    }

    #[test]
    fn a_run_whose_result_is_too_large_has_failed_for_good() {
        let large = Json::parse(format!("\"{}\"", "x".repeat(RESULT_BYTES_MAX))).expect("JSON");
        let ended = Event { result: Some(large), ..event(EventKind::Completed) }.cut_to_limits();
        ended.check().expect("an event that fits");
        assert_eq!((ended.kind, ended.retry), (EventKind::Failed, Some(false)));
        assert!(ended.error.is_some_and(|error| error.contains("result")));
    }

    #[test]
    fn only_an_end_carries_when_the_run_started() {
        let started_at = Some(jiff::Timestamp::UNIX_EPOCH);
        Event { started_at, ..event(EventKind::Completed) }.check().expect("an end");
        for kind in [EventKind::Started, EventKind::Progress, EventKind::Log] {
            let invalid = Event { started_at, ..event(kind) }.check().expect_err("not an end");
            assert!(invalid.to_string().contains("startedAt"), "{invalid}");
        }
    }
}
