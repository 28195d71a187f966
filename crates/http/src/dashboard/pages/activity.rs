//! The activity of operators: who did what, when, and how the target was before and after.

use askama::Template;
use axum::extract::{Request, State};
use convoke_core::Json;
use convoke_core::audit::{AuditEntry, AuditQuery};
use jiff::Timestamp;
use serde_json::Value;

use crate::AppState;
use crate::audit;
use crate::body::Params;
use crate::dashboard::layout::{self, ACTIVITY, Frame, Page};
use crate::dashboard::routes::PageRoutes;
use crate::dashboard::text::{When, encode};
use crate::error::ApiResult;

pub fn routes() -> PageRoutes {
    PageRoutes::new().page("/activity", list)
}

#[derive(Template)]
#[template(path = "activity.html")]
struct ActivityTemplate {
    page: Page,
    filter: Filter,
    entries: Vec<Row>,
    /// The query of the next page.
    older: Option<String>,
}

/// The filter as it was typed.
struct Filter {
    who: String,
    action: String,
    target: String,
    after: String,
    before: String,
}

impl Filter {
    fn of(query: &AuditQuery) -> Self {
        let text = |text: &Option<String>| text.clone().unwrap_or_default();
        let time = |at: Option<Timestamp>| at.map(|at| at.to_string()).unwrap_or_default();
        Filter {
            who: text(&query.who),
            action: text(&query.action),
            target: text(&query.target),
            after: time(query.after),
            before: time(query.before),
        }
    }

    fn is_empty(&self) -> bool {
        self.fields().iter().all(|(_, value)| value.is_empty())
    }

    fn fields(&self) -> [(&'static str, &str); 5] {
        let Filter { who, action, target, after, before } = self;
        [("who", who), ("action", action), ("target", target), ("after", after), ("before", before)]
    }

    /// Returns the query of the page that begins below `cursor`.
    fn older(&self, cursor: u64) -> String {
        let fields = self.fields().into_iter().filter(|(_, value)| !value.is_empty());
        let fields = fields.map(|(name, value)| format!("{name}={}&", encode(value)));
        format!("?{}cursor={cursor}", fields.collect::<String>())
    }
}

struct Row {
    when: When,
    who: String,
    via: &'static str,
    action: String,
    target: String,
    /// The page of the target, if it has one.
    path: Option<String>,
    changes: Vec<Change>,
    node: String,
}

/// A field of the target that the act has changed.
struct Change {
    name: String,
    before: Option<String>,
    after: Option<String>,
}

impl Row {
    fn of(AuditEntry { seq: _, act }: AuditEntry, now: Timestamp) -> Self {
        Row {
            when: When::new(act.at, now),
            path: path_of(&act.action, &act.target),
            changes: changes(act.before.as_ref(), act.after.as_ref()),
            who: act.who,
            via: act.via.as_str(),
            action: act.action,
            target: act.target,
            node: act.node.to_string(),
        }
    }
}

fn path_of(action: &str, target: &str) -> Option<String> {
    let place = match action.split('.').next()? {
        "job" => "jobs",
        "queue" => "queues",
        "schedule" => "schedules",
        _ => return None,
    };
    (!target.is_empty()).then(|| format!("/{place}/{}", encode(target)))
}

/// Returns the fields that differ, in their order; a value that is not an object is one field without a name.
fn changes(before: Option<&Json>, after: Option<&Json>) -> Vec<Change> {
    let read = |json: Option<&Json>| json.and_then(|json| json.to::<Value>().ok()).unwrap_or_default();
    let (before, after) = (read(before), read(after));
    let text = |value: &Value| match value {
        Value::Null => None,
        Value::String(text) => Some(text.clone()),
        other => Some(other.to_string()),
    };
    let fields = |value: &Value| value.as_object().cloned().unwrap_or_default();
    let (old, new) = (fields(&before), fields(&after));
    let mut names: Vec<&String> = old.keys().chain(new.keys().filter(|name| !old.contains_key(*name))).collect();
    names.retain(|name| old.get(*name) != new.get(*name));
    let value = |fields: &serde_json::Map<String, Value>, name: &str| fields.get(name).and_then(text);
    let change = |name: &String| Change { name: name.clone(), before: value(&old, name), after: value(&new, name) };
    names.into_iter().map(change).filter(|change| change.before.is_some() || change.after.is_some()).collect()
}

async fn list(State(state): State<AppState>, frame: Frame, request: Request) -> ApiResult {
    let query = audit::query(&mut Params::of(request.uri())?)?;
    let found = audit::page(&state, &query).await?;
    let (filter, now) = (Filter::of(&query), state.coordinator.clock().now());
    layout::render(&ActivityTemplate {
        page: frame.page(ACTIVITY, "Activity").at_rest(),
        older: found.next_cursor.map(|cursor| filter.older(cursor)),
        filter,
        entries: found.entries.into_iter().map(|entry| Row::of(entry, now)).collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changed_is_shown() {
        let json = |text: &str| Json::parse(text.into()).expect("JSON");
        let shown = |before: Option<&str>, after: Option<&str>| {
            let (before, after) = (before.map(json), after.map(json));
            let changes = changes(before.as_ref(), after.as_ref()).into_iter();
            let text = |value: Option<String>| value.unwrap_or("-".into());
            changes
                .map(|change| format!("{} {} {}", change.name, text(change.before), text(change.after)))
                .collect::<Vec<_>>()
        };
        let queue = r#"{"paused":false,"concurrency":null,"rateLimit":null}"#;
        assert_eq!(
            shown(Some(queue), Some(r#"{"paused":true,"concurrency":3,"rateLimit":null}"#)),
            ["concurrency - 3", "paused false true"]
        );
        assert_eq!(shown(None, Some(r#"{"retried":7}"#)), ["retried - 7"]);
        assert_eq!(shown(Some(queue), None), ["paused false -"]);
        assert!(shown(None, None).is_empty());
    }
}
