//! The action and the target of a request, by its method and path, and the state of a target.
//!
//! `POST /v1/queues/mail/pause` of the API and `POST /queues/mail/pause` of a page are the same act: `queue.pause` of
//! `mail`.

use convoke_core::jobs::schedule::Schedule;
use convoke_core::{JobId, NodeId, QueueName, ScheduleName};
use http::Method;
use serde_json::{Value, json};

use crate::AppState;

/// The kind of a target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Job,
    Queue,
    Schedule,
    Node,
    Other,
}

/// A target: the name of a thing, and its kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    kind: Kind,
    pub name: String,
}

/// Returns the action of a request and its target, before more is known.
pub fn planned(method: &Method, path: &str) -> (String, Target) {
    let path = path.strip_prefix("/v1/").unwrap_or(path).trim_matches('/');
    // Forms of the page of the cluster: `/cluster/nodes/n/drain`.
    let path = path.strip_prefix("cluster/").unwrap_or(path);
    let segments: Vec<&str> = path.split('/').collect();
    let (kind, word) = match segments.first().copied().unwrap_or_default() {
        "jobs" => (Kind::Job, "job"),
        "queues" => (Kind::Queue, "queue"),
        "schedules" => (Kind::Schedule, "schedule"),
        "nodes" => (Kind::Node, "node"),
        "dead-letters" => (Kind::Other, "dead"),
        other => (Kind::Other, other),
    };
    let none = || Target { kind: Kind::Other, name: String::new() };
    let of = |name: &str| Target { kind, name: decoded(name) };
    let verb = match *method {
        Method::PUT => "put",
        Method::PATCH => "configure",
        Method::DELETE if kind == Kind::Schedule => "remove",
        Method::DELETE => "delete",
        _ => "change",
    };
    match segments[..] {
        ["jobs"] | ["jobs", "batch" | "enqueue"] => ("job.enqueue".into(), none()),
        // Of many at once: `/jobs/bulk/cancel`, `/dead-letters/purge`.
        ["jobs", "bulk"] => ("jobs.bulk".into(), none()),
        ["jobs", "bulk", verb] => (format!("jobs.{verb}"), none()),
        [_, last] if *method == Method::POST && kind == Kind::Other => (format!("{word}.{last}"), none()),
        [_, name] => (format!("{word}.{verb}"), of(name)),
        [_, name, .., last] => (format!("{word}.{last}"), of(name)),
        ["sessions"] => ("sessions.end".into(), none()),
        // A path of one segment: `/logout`.
        _ => (word.to_owned(), none()),
    }
}

/// Returns the action by what has changed.
pub fn done(action: String, before: Option<&Value>, after: Option<&Value>) -> String {
    let field = |value: Option<&Value>, name: &str| value.map(|value| value[name].clone()).unwrap_or_default();
    match &*action {
        "queue.configure" => {
            let paused = |value| field(value, "paused") == true;
            match (paused(before), paused(after)) {
                (false, true) => "queue.pause",
                (true, false) => "queue.resume",
                _ => "queue.limit",
            }
            .into()
        }
        "schedule.put" if before.is_none() => "schedule.create".into(),
        "schedule.put" => "schedule.update".into(),
        _ => action,
    }
}

impl Target {
    /// Returns the state of the target; `None` if it does not exist, is of no known kind, or cannot be read.
    pub async fn state(&self, state: &AppState, action: &str) -> Option<Value> {
        let store = state.coordinator.store();
        match self.kind {
            Kind::Job => {
                let id: JobId = self.name.parse().ok()?;
                let job = store.get(&[id]).await.ok()?.pop()??;
                let mut shown = json!({
                    "status": job.status, "attempt": job.attempt,
                    "type": job.definition.job_type, "queue": job.definition.queue,
                });
                if action == "job.cancel" && !job.status.is_live() {
                    shown["reason"] = json!(job.error);
                }
                Some(shown)
            }
            Kind::Queue => {
                let queue = store.queue(&QueueName::new(&self.name).ok()?).await.ok()??;
                let (rate_limit, concurrency) = (queue.rate_limit, queue.concurrency);
                Some(json!({ "paused": queue.paused, "rateLimit": rate_limit, "concurrency": concurrency }))
            }
            Kind::Schedule => state_of_schedule(state, &ScheduleName::new(&self.name).ok()?).await,
            Kind::Node => {
                let node = state.coordinator.node_view(&NodeId::new(&self.name).ok()?).await.ok()?;
                Some(json!({ "state": node.state, "role": node.role }))
            }
            Kind::Other => None,
        }
    }
}

/// Returns the state of a schedule; `None` if there is none.
pub async fn state_of_schedule(state: &AppState, name: &ScheduleName) -> Option<Value> {
    state.coordinator.store().schedule(name).await.ok()?.map(rule_of)
}

/// Returns a schedule without what its ticks change.
fn rule_of(schedule: Schedule) -> Value {
    let mut shown = json!(schedule);
    if let Some(fields) = shown.as_object_mut() {
        fields.retain(|name, value| {
            !matches!(&**name, "name" | "createdAt" | "nextRunAt" | "lastRunAt") && !value.is_null()
        });
    }
    shown
}

/// Replaces arguments by their size, since entries have no payloads. A change is still visible.
pub fn without_args(before: Option<Value>, after: Option<Value>) -> [Option<Value>; 2] {
    let args = |value: &Option<Value>| value.as_ref().and_then(|value| value.get("args").cloned());
    let is_changed = before.is_some() && after.is_some() && args(&before) != args(&after);
    let mut both = [before, after];
    for (place, value) in both.iter_mut().enumerate() {
        if let Some(args) = value.as_mut().and_then(|value| value.get_mut("args")) {
            let mark = if is_changed && place == 1 { ", changed" } else { "" };
            *args = json!(format!("({} bytes{mark})", args.to_string().len()));
        }
    }
    both
}

/// Decodes a segment of a path.
fn decoded(segment: &str) -> String {
    let query = format!("s={}", segment.replace('+', "%2B"));
    form_urlencoded::parse(query.as_bytes()).next().map_or_else(String::new, |(_, text)| text.into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_of_the_api_and_of_pages_are_the_same_acts() {
        for (method, path, action, target) in [
            ("POST", "/v1/jobs/0198/cancel", "job.cancel", "0198"),
            ("POST", "/jobs/0198/retry", "job.retry", "0198"),
            ("DELETE", "/v1/jobs/0198", "job.delete", "0198"),
            ("POST", "/v1/jobs", "job.enqueue", ""),
            ("POST", "/jobs/enqueue", "job.enqueue", ""),
            ("POST", "/jobs/bulk/cancel", "jobs.cancel", ""),
            ("PATCH", "/v1/queues/a%2Fb", "queue.configure", "a/b"),
            ("POST", "/queues/a+b/pause", "queue.pause", "a+b"),
            ("DELETE", "/v1/queues/q", "queue.delete", "q"),
            ("PUT", "/v1/schedules/s", "schedule.put", "s"),
            ("DELETE", "/v1/schedules/s", "schedule.remove", "s"),
            ("POST", "/v1/schedules/s/trigger", "schedule.trigger", "s"),
            ("POST", "/v1/nodes/n/drain", "node.drain", "n"),
            ("POST", "/cluster/nodes/n/drain", "node.drain", "n"),
            ("POST", "/v1/dead-letters/purge", "dead.purge", ""),
            ("DELETE", "/v1/sessions", "sessions.end", ""),
            ("POST", "/logout", "logout", ""),
            ("POST", "/v1/something/new", "something.new", ""),
        ] {
            let method = Method::from_bytes(method.as_bytes()).expect("a method");
            let (planned_action, planned_target) = planned(&method, path);
            assert_eq!((&*planned_action, &*planned_target.name), (action, target), "{method} {path}");
        }
    }

    #[test]
    fn arguments_are_shown_by_their_size_and_whether_they_changed() {
        let schedule = |args: &str| Some(json!({ "args": args, "paused": false }));
        let [before, after] = without_args(schedule("a"), schedule("b"));
        assert_eq!(before, Some(json!({ "args": "(3 bytes)", "paused": false })));
        assert_eq!(after, Some(json!({ "args": "(3 bytes, changed)", "paused": false })));
        assert_eq!(without_args(None, schedule("a"))[1], Some(json!({ "args": "(3 bytes)", "paused": false })));
    }
}
