//! The encoding of a worker's events on the bus: messages of a job's channels become the events of the worker link, and
//! back.
//!
//! Folding, limits and the rules about runs are those of the link; here are only the two encodings.

use jiff::Timestamp;

use super::{LogMessage, StatusKind, StatusMessage, V1};
use crate::ids::WorkerId;
use crate::jobs::link::{Event, EventKind};

/// An event as it is sent on one of the channels of its job.
#[derive(Debug, Clone, PartialEq)]
pub enum EventMessage {
    /// To `job.{id}.status`.
    Status(StatusMessage),
    /// To `job.{id}.logs`.
    Log(LogMessage),
}

impl EventMessage {
    /// Returns the message of an event. `now` is its time if it has none.
    pub fn of(worker: &WorkerId, event: &Event, now: Timestamp) -> Self {
        let (job_id, execution_id) = (event.job_id, event.execution_id);
        let at = event.at.unwrap_or(now);
        let kind = match event.kind {
            EventKind::Log => {
                let (level, message) = (event.level.unwrap_or_default(), event.message.clone().unwrap_or_default());
                let seq = event.seq.unwrap_or_default();
                return EventMessage::Log(LogMessage { v: V1, job_id, execution_id, seq, at, level, message });
            }
            EventKind::Started => StatusKind::Started,
            EventKind::Progress => StatusKind::Progress,
            EventKind::Completed => StatusKind::Completed,
            EventKind::Failed => StatusKind::Failed,
            EventKind::TimedOut => StatusKind::TimedOut,
            EventKind::Cancelled => StatusKind::Cancelled,
            EventKind::Released => StatusKind::Released,
        };
        EventMessage::Status(StatusMessage {
            v: V1,
            job_id,
            execution_id,
            worker_id: worker.clone(),
            kind,
            at,
            started_at: event.started_at,
            percent: event.percent,
            message: event.message.clone(),
            result: event.result.clone(),
            error: event.error.clone(),
            retry: event.retry,
        })
    }
}

impl StatusMessage {
    /// Returns the event and the worker that sent it.
    pub fn into_event(self) -> (WorkerId, Event) {
        let kind = match self.kind {
            StatusKind::Started => EventKind::Started,
            StatusKind::Progress => EventKind::Progress,
            StatusKind::Completed => EventKind::Completed,
            StatusKind::Failed => EventKind::Failed,
            StatusKind::TimedOut => EventKind::TimedOut,
            StatusKind::Cancelled => EventKind::Cancelled,
            StatusKind::Released => EventKind::Released,
        };
        let event = Event {
            at: Some(self.at),
            started_at: self.started_at,
            percent: self.percent,
            message: self.message,
            result: self.result,
            error: self.error,
            retry: self.retry,
            ..Event::new(self.job_id, self.execution_id, kind)
        };
        (self.worker_id, event)
    }
}

impl LogMessage {
    /// Returns the event of the line.
    pub fn into_event(self) -> Event {
        let (at, level, seq, message) = (Some(self.at), Some(self.level), Some(self.seq), Some(self.message));
        Event { at, level, seq, message, ..Event::new(self.job_id, self.execution_id, EventKind::Log) }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;
    use crate::ids::{ExecutionId, JobId};
    use crate::jobs::LogLevel;
    use crate::json::Json;

    #[test]
    fn an_event_comes_back_from_its_message() {
        let (job, run) = (JobId(Uuid::from_u128(1)), ExecutionId(Uuid::from_u128(2)));
        let (at, started_at) = (Timestamp::from_second(20).expect("an instant"), Some(Timestamp::UNIX_EPOCH));
        let worker = WorkerId::new("w").expect("a name");
        let event = |kind| Event { at: Some(at), ..Event::new(job, run, kind) };
        let result = Some(Json::parse("[1]".into()).expect("JSON"));
        let (message, error) = (Some("m".to_owned()), Some("e".to_owned()));
        let events = [
            event(EventKind::Started),
            Event { percent: Some(4), message: message.clone(), ..event(EventKind::Progress) },
            Event { started_at, result, ..event(EventKind::Completed) },
            Event { started_at, error: error.clone(), retry: Some(false), ..event(EventKind::Failed) },
            Event { error, ..event(EventKind::TimedOut) },
            Event { message: message.clone(), ..event(EventKind::Cancelled) },
            event(EventKind::Released),
            Event { level: Some(LogLevel::Warn), seq: Some(3), message, ..event(EventKind::Log) },
        ];
        for event in events {
            match EventMessage::of(&worker, &event, Timestamp::MAX) {
                EventMessage::Status(status) => assert_eq!(status.into_event(), (worker.clone(), event)),
                EventMessage::Log(log) => assert_eq!(log.into_event(), event),
            }
        }
        let EventMessage::Status(untimed) = EventMessage::of(&worker, &Event::new(job, run, EventKind::Started), at)
        else {
            panic!("not a log line");
        };
        assert_eq!(untimed.at, at);
    }
}
