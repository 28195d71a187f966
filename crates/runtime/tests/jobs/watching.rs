//! Two nodes on one bus: who watches on one sees what happens on both, once, and where.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{one, register, report, shared_ports, spec, start_as};
use convoke_core::jobs::event::{ClusterEvent, Event};
use convoke_core::jobs::link::{Event as RunEvent, EventKind};
use convoke_core::jobs::schedule::ScheduleSpec;
use convoke_core::{JobId, ScheduleName};
use convoke_runtime::jobs::{Coordinator, Ports};
use tokio::sync::broadcast::Receiver;

/// Waits for an event, passing over others.
async fn next(events: &mut Receiver<Arc<Event>>, is: impl Fn(&Event) -> bool) -> Arc<Event> {
    loop {
        let event =
            tokio::time::timeout(Duration::from_secs(60), events.recv()).await.expect("in time").expect("received");
        if is(&event) {
            return event;
        }
    }
}

fn job_of(event: &Event) -> Option<JobId> {
    match &event.what {
        ClusterEvent::Job { job_id, .. } => Some(*job_id),
        _ => None,
    }
}

fn from(event: &Event) -> &str {
    event.node.as_ref().map_or("", |node| node.as_str())
}

/// Two nodes, and a watcher of the first that the second knows of.
async fn watched(ports: &Ports) -> (Coordinator, Coordinator, Receiver<Arc<Event>>) {
    let (first, second) = (start_as("n1", ports).await, start_as("n2", ports).await);
    let mut events = first.events();
    // The second publishes nothing before it has received that there is a watcher.
    loop {
        let (job, _) = second.enqueue(spec()).await.expect("it is enqueued");
        second.cancel(job.id, None).await.expect("it is cancelled");
        tokio::time::sleep(Duration::from_millis(2)).await;
        if events.try_recv().is_ok_and(|event| from(&event) == "n2") {
            return (first, second, events);
        }
    }
}

#[tokio::test]
async fn a_watcher_sees_a_job_s_life_on_both_nodes_once() {
    let ports = shared_ports();
    let (first, second, mut events) = watched(&ports).await;
    register(&second, "w", 1).await;
    let (job, _) = first.enqueue(spec()).await.expect("it is enqueued");
    let (id, execution, _) = one(&second, "w").await;
    report(&second, "w", vec![RunEvent::new(id, execution, EventKind::Completed)]).await;
    // The last event of the other node: a duplicate would have come by then.
    second.enqueue(spec()).await.expect("it is enqueued");
    let mut seen = Vec::new();
    loop {
        let event = next(&mut events, |event| job_of(event).is_some()).await;
        match job_of(&event) {
            Some(of) if of == job.id => seen.push((event.name(), from(&event).to_owned())),
            _ if seen.iter().any(|(name, _)| *name == "job:completed") && from(&event) == "n2" => break,
            _ => {}
        }
    }
    seen.sort();
    let leader = first.cluster().leader.expect("a leader").to_string();
    let expected = [("job:completed", "n2"), ("job:dispatched", &leader), ("job:pending", "n1")];
    assert_eq!(seen, expected.map(|(name, node)| (name, node.to_owned())));
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn the_coming_and_going_of_a_node_and_changes_of_schedules_are_seen_elsewhere() {
    let ports = shared_ports();
    let first = start_as("n1", &ports).await;
    let mut events = first.events();
    let second = start_as("n2", &ports).await;
    let joined = next(&mut events, |event| event.name() == "node:joined").await;
    assert_eq!(from(&joined), "n2");
    let name = ScheduleName::new("nightly").expect("a name");
    let schedule: ScheduleSpec = serde_json::from_str(r#"{"type":"t","every":"1h"}"#).expect("a schedule");
    second.put_schedule(name.clone(), schedule.clone()).await.expect("it is put");
    second.put_schedule(name.clone(), schedule).await.expect("it is put");
    second.pause_schedule(&name, true).await.expect("it is paused");
    second.pause_schedule(&name, true).await.expect("it stays paused");
    second.pause_schedule(&name, false).await.expect("it is resumed");
    second.remove_schedule(&name).await.expect("it is removed");
    second.stop().await;
    let mut seen = Vec::new();
    while seen.last() != Some(&"node:left") {
        seen.push(next(&mut events, |event| !event.name().starts_with("leader")).await.name());
    }
    let expected = ["created", "updated", "paused", "resumed", "removed"].map(|change| format!("schedule:{change}"));
    assert_eq!(seen, [expected.as_slice(), &["node:draining".into(), "node:left".into()]].concat());
    first.stop().await;
}

#[tokio::test]
async fn what_is_too_much_is_told_as_a_gap_and_goes_on() {
    let ports = shared_ports();
    let (first, second, mut events) = watched(&ports).await;
    second.enqueue_batch(vec![spec(); 10_000]).await.expect("they are enqueued");
    let gap = next(&mut events, |event| event.name() == "lagged").await;
    assert_eq!(from(&gap), "n2");
    assert!(matches!(gap.what, ClusterEvent::Lagged { missed } if missed > 0));
    let (job, _) = second.enqueue(spec()).await.expect("it is enqueued");
    next(&mut events, |event| job_of(event) == Some(job.id)).await;
    first.stop().await;
    second.stop().await;
}

#[tokio::test]
async fn while_nobody_watches_nothing_is_sent() {
    let ports = shared_ports();
    let topic = |name: &str| [format!("convoke.{name}")];
    let mut sent = ports.bus.subscribe(&topic("events")).await.expect("it is subscribed");
    let (first, second) = (start_as("n1", &ports).await, start_as("n2", &ports).await);
    for node in [&first, &second] {
        let (job, _) = node.enqueue(spec()).await.expect("it is enqueued");
        node.cancel(job.id, None).await.expect("it is cancelled");
        node.stop().await;
    }
    // Earlier events are in front of this one.
    ports.bus.publish("convoke.events", "last".into()).await.expect("it is published");
    let first = sent.next().await.expect("it is received").expect("nothing is missed");
    assert_eq!(first.body, "last");
}

#[tokio::test]
async fn garbage_from_the_bus_is_set_aside_and_hinders_nobody() {
    let ports = shared_ports();
    let (first, second, mut events) = watched(&ports).await;
    for topic in ["cache", "interest", "job.ended", "events", "coordinator.heartbeat"] {
        for body in ["", "{", "[]", r#"{"v":2}"#, r#"{"v":1,"nodeId":7,"keys":{},"jobs":[0],"events":{}}"#] {
            ports.bus.publish(&format!("convoke.{topic}"), body.into()).await.expect("it is published");
        }
    }
    let (job, _) = second.enqueue(spec()).await.expect("it is enqueued");
    next(&mut events, |event| job_of(event) == Some(job.id)).await;
    assert!(ports.bus.backlog("convoke.poison", "readers").await.expect("it is counted") > 0);
    first.stop().await;
    second.stop().await;
}
