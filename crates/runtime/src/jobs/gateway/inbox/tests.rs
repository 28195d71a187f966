use std::time::Duration;

use convoke_core::jobs::RunInput;
use convoke_core::jobs::wire::V1;
use convoke_core::{JobId, JobType, Json};
use futures_util::FutureExt;
use uuid::Uuid;

use super::*;

fn queue(name: &str) -> QueueName {
    QueueName::new(name).expect("a name")
}

fn run_of(name: &str, bytes: usize) -> Dispatch {
    let input = RunInput {
        job_type: JobType::new("test").expect("a name"),
        queue: queue(name),
        args: Json::parse(format!("\"{}\"", "x".repeat(bytes - 2))).expect("valid JSON"),
        max_retries: 0,
        timeout: None,
        correlation_id: None,
        tags: Vec::new(),
    };
    let (job_id, execution_id) = (JobId(Uuid::now_v7()), ExecutionId(Uuid::now_v7()));
    Dispatch { v: V1, job_id, execution_id, input, attempt: 1, epoch: Epoch(1), rate_limit: None }
}

fn runs(name: &str, count: usize) -> Vec<Dispatch> {
    (0..count).map(|_| run_of(name, 2)).collect()
}

fn ids(runs: &[Dispatch]) -> Vec<ExecutionId> {
    runs.iter().map(|run| run.execution_id).collect()
}

#[test]
fn runs_leave_in_the_order_of_dispatch_and_count_until_they_are_handed_out() {
    let inbox = Inbox::default();
    let sent = runs("a", 3);
    assert!(inbox.put(sent.clone()).is_empty());
    assert!(inbox.put(sent[..1].to_vec()).is_empty(), "a message that comes twice");
    assert_eq!((inbox.len(), inbox.waiting(&queue("a"))), (3, 3));
    let taken = inbox.take(&[queue("b"), queue("a")], 2);
    assert_eq!(inbox.waiting(&queue("a")), 3, "the worker does not have them yet");
    assert_eq!(ids(&taken.hand_out()), ids(&sent[..2]));
    assert_eq!((inbox.len(), inbox.all_waiting()), (1, BTreeMap::from([(queue("a"), 1)])));
    assert!(!inbox.has(&sent[0].execution_id) && inbox.has(&sent[2].execution_id));
}

#[test]
fn runs_of_a_poll_that_was_dropped_go_back_to_the_front_and_are_checked() {
    let inbox = Inbox::default();
    let sent = runs("a", 3);
    inbox.put(sent.clone());
    drop(inbox.take(&[queue("a")], 2));
    assert_eq!((inbox.len(), inbox.waiting(&queue("a"))), (3, 3));
    let taken = inbox.take(&[queue("a")], 3);
    let doubtful: Vec<bool> = taken.iter().map(|(_, is_doubtful)| is_doubtful).collect();
    assert_eq!(doubtful, [true, true, false]);
    assert_eq!(ids(&taken.hand_out()), ids(&sent));
    assert_eq!((inbox.len(), inbox.inner.lock().bytes), (0, 0));
}

#[test]
fn a_poll_takes_no_more_bytes_than_one_response_has() {
    let inbox = Inbox::default();
    inbox.put((0..3).map(|_| run_of("a", TAKE_BYTES_MAX / 2)));
    inbox.put([run_of("b", TAKE_BYTES_MAX + 1)]);
    assert_eq!(inbox.take(&[queue("a"), queue("b")], 10).hand_out().len(), 2);
    assert_eq!(inbox.take(&[queue("b"), queue("a")], 10).hand_out().len(), 1, "a large one comes alone");
}

#[test]
fn what_does_not_fit_is_returned() {
    let inbox = Inbox::default();
    assert!(inbox.put([run_of("a", INBOX_BYTES_MAX - 10)]).is_empty());
    let more = vec![run_of("a", 10), run_of("a", 2)];
    let rest = inbox.put(more.clone());
    assert_eq!(rest.iter().map(|run| run.execution_id).collect::<Vec<_>>(), ids(&more[1..]));
    assert_eq!(inbox.recall(|name| *name == queue("a")).len(), 2);
    assert_eq!((inbox.len(), inbox.inner.lock().bytes), (0, 0));
    assert!(inbox.put([run_of("a", INBOX_BYTES_MAX + 10)]).is_empty(), "one always fits");
}

#[test]
fn a_report_has_the_last_message_and_what_waits() {
    let inbox = Inbox::default();
    inbox.put(runs("a", 2));
    inbox.received(Epoch(7), 3);
    inbox.received(Epoch(7), 2);
    let waiting = BTreeMap::from([(queue("a"), 2)]);
    assert_eq!(inbox.report(), InboxReport { epoch: Epoch(7), seq: 3, waiting, prefetch: 0 });
    inbox.received(Epoch(8), 1);
    assert_eq!((inbox.report().epoch, inbox.report().seq), (Epoch(8), 1));
}

#[tokio::test]
async fn runs_wake_as_many_polls_as_ask_for_them() {
    let inbox = Inbox::default();
    let (a, b) = ([queue("a")], [queue("a"), queue("b")]);
    let polls: Vec<_> = [(&a[..], 2), (&b[..], 2), (&a[..], 2)].map(|(queues, max)| inbox.poll(queues, max)).into();
    let full = inbox.poll(&a, 0);
    inbox.put(runs("a", 3));
    let woken: Vec<bool> = polls.iter().chain([&full]).map(|poll| poll.woken().now_or_never().is_some()).collect();
    assert_eq!(woken, [true, true, false, false]);
}

#[tokio::test]
async fn a_poll_that_was_woken_and_ends_passes_the_signal_on() {
    let inbox = Inbox::default();
    let a = [queue("a")];
    let (first, second) = (inbox.poll(&a, 1), inbox.poll(&a, 1));
    inbox.put(runs("a", 1));
    assert!(second.woken().now_or_never().is_none());
    drop(first);
    tokio::time::timeout(Duration::from_secs(5), second.woken()).await.expect("it is woken instead");
    drop(second);
    assert!(inbox.inner.lock().polls.is_empty());
}
