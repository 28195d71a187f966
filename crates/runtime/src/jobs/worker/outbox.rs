//! The events that wait to be sent to the coordinator, in order.

use std::collections::VecDeque;

use convoke_core::jobs::link::{Event, EventKind};
use convoke_core::limits::REPORT_EVENTS_MAX;

/// Logs and progress beyond these wait, or are lost while the coordinator is unavailable. Starts and ends never are.
const CHATTER_EVENTS_MAX: usize = 10_000;
const CHATTER_BYTES_MAX: usize = 8 << 20;
/// Well within the limit of one request.
const BATCH_BYTES_MAX: usize = 16 << 20;
const EVENT_BYTES: usize = 256;

#[derive(Debug, Default)]
pub(super) struct Outbox {
    events: VecDeque<Event>,
    /// Of all events.
    bytes: usize,
    chatter: usize,
    chatter_bytes: usize,
}

impl Outbox {
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    pub fn len(&self) -> usize {
        self.events.len()
    }

    /// Bytes of the waiting events.
    pub fn bytes(&self) -> usize {
        self.bytes
    }

    pub fn push(&mut self, event: Event) {
        if is_chatter(&event) {
            // Of two progress events in a row only the later counts.
            if let Some(last) = self.events.back_mut()
                && last.kind == EventKind::Progress
                && event.kind == EventKind::Progress
                && last.execution_id == event.execution_id
            {
                self.bytes = self.bytes + size(&event) - size(last);
                self.chatter_bytes = self.chatter_bytes + size(&event) - size(last);
                *last = event;
                return;
            }
            self.chatter += 1;
            self.chatter_bytes += size(&event);
        }
        self.bytes += size(&event);
        self.events.push_back(event);
    }

    pub fn has_room_for_chatter(&self) -> bool {
        self.chatter < CHATTER_EVENTS_MAX && self.chatter_bytes < CHATTER_BYTES_MAX
    }

    /// Returns the next events, as many as one request may carry and at most `events_max`.
    pub fn take(&mut self, events_max: usize) -> Vec<Event> {
        let most = self.events.len().min(events_max).min(REPORT_EVENTS_MAX);
        let (mut count, mut bytes) = (0, 0);
        for event in self.events.iter().take(most) {
            bytes += size(event);
            if bytes > BATCH_BYTES_MAX && count > 0 {
                break;
            }
            count += 1;
            self.bytes -= size(event);
            if is_chatter(event) {
                self.chatter -= 1;
                self.chatter_bytes -= size(event);
            }
        }
        if count == self.events.len() {
            return std::mem::take(&mut self.events).into();
        }
        self.events.drain(..count).collect()
    }
}

fn is_chatter(event: &Event) -> bool {
    matches!(event.kind, EventKind::Progress | EventKind::Log)
}

fn size(event: &Event) -> usize {
    let text = |text: &Option<String>| text.as_ref().map_or(0, String::len);
    EVENT_BYTES + text(&event.message) + text(&event.error) + event.result.as_ref().map_or(0, |r| r.as_str().len())
}

#[cfg(test)]
mod tests {
    use convoke_core::{ExecutionId, JobId};
    use uuid::Uuid;

    use super::*;

    fn event(run: u128, kind: EventKind, message: &str) -> Event {
        let (job, execution) = (JobId(Uuid::from_u128(run)), ExecutionId(Uuid::from_u128(run)));
        Event { message: Some(message.into()), ..Event::new(job, execution, kind) }
    }

    #[test]
    fn events_leave_in_the_order_they_came() {
        let mut outbox = Outbox::default();
        (0..5).for_each(|n| outbox.push(event(n, EventKind::Completed, "")));
        let first: Vec<_> = outbox.take(3);
        assert_eq!(first.iter().map(|e| e.job_id.0.as_u128()).collect::<Vec<_>>(), [0, 1, 2]);
        assert_eq!(outbox.take(usize::MAX).len(), 2);
        assert!(outbox.is_empty());
    }

    #[test]
    fn of_progress_in_a_row_the_last_is_kept() {
        let mut outbox = Outbox::default();
        for (run, message) in [(1, "a"), (1, "b"), (2, "c"), (1, "d")] {
            outbox.push(event(run, EventKind::Progress, message));
        }
        let messages: Vec<_> = outbox.take(usize::MAX).into_iter().map(|e| e.message.expect("one")).collect();
        assert_eq!(messages, ["b", "c", "d"]);
    }

    #[test]
    fn a_request_is_bounded_in_bytes_but_never_empty() {
        let mut outbox = Outbox::default();
        let long = "x".repeat(BATCH_BYTES_MAX);
        (0..2).for_each(|n| outbox.push(event(n, EventKind::Failed, &long)));
        assert_eq!(outbox.take(usize::MAX).len(), 1);
        assert_eq!(outbox.take(usize::MAX).len(), 1);
    }

    #[test]
    fn chatter_has_a_limit_that_what_was_taken_frees() {
        let mut outbox = Outbox::default();
        let line = "x".repeat(1 << 20);
        while outbox.has_room_for_chatter() {
            outbox.push(event(1, EventKind::Log, &line));
        }
        assert_eq!(outbox.len(), 8);
        outbox.take(usize::MAX);
        assert!(outbox.has_room_for_chatter());
        assert_eq!((outbox.chatter, outbox.chatter_bytes, outbox.bytes()), (0, 0, 0));
    }
}
