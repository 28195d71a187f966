//! The audit: every act of an operator is recorded, whichever route it takes.
//!
//! A request that changes something is an act unless it is listed here as none: the worker gateway, and the enqueues of
//! clients. So a route that is added is recorded by its path, and cannot be forgotten. The state of the target is read
//! before and after. A handler can add what only it knows, by a [`Noted`] in the extensions of its response.
//!
//! An act that began runs to its end and is recorded even if its client disconnects. If the entry cannot be stored, the
//! act has still happened: it is logged as an error with all its fields, and counted.

mod read;
mod target;

use axum::extract::Request;
use axum::response::Response;
use convoke_core::Json;
use convoke_core::audit::{Act, AuditVia};
use http::{HeaderMap, Method};
use serde_json::{Value, json};

pub use read::{page, query, routes};
use target::Target;
pub use target::state_of_schedule;

use crate::AppState;
use crate::access::{Area, Caller, Identity, is_read};
use crate::error::ApiError;

/// The header by which the command line and the dashboard name themselves.
const VIA_HEADER: &str = "x-convoke-via";

/// The details that a handler adds to the entry of its act.
#[derive(Debug, Clone, Default)]
pub struct Noted {
    /// Instead of the action by the path.
    pub action: Option<String>,
    /// Instead of the target by the path.
    pub target: Option<String>,
    /// Instead of the target's state before.
    pub before: Option<Value>,
    /// Instead of the target's state.
    pub after: Option<Value>,
    /// The request has changed nothing, such as a preview.
    pub is_nothing: bool,
}

impl Noted {
    /// Adds the details to a response.
    pub fn on(self, mut response: Response) -> Response {
        response.extensions_mut().insert(self);
        response
    }
}

/// Describes the metric.
pub fn describe() {
    metrics::describe_counter!("convoke_audit_failures_total", "Acts of operators that could not be recorded.");
    metrics::counter!("convoke_audit_failures_total").absolute(0);
}

/// An act that is about to be done.
pub struct Pending {
    who: String,
    via: AuditVia,
    action: String,
    target: Target,
    before: Option<Value>,
}

impl Pending {
    /// Returns the act of a request; `None` if the request is none.
    pub fn of(request: &Request) -> Option<Self> {
        let caller = Caller::of(request.extensions())?;
        let (method, path) = (request.method(), request.uri().path());
        let via = via(caller, request.headers(), path);
        if is_read(method) || Area::of(path) == Area::Gateway {
            return None;
        }
        // An enqueue is the work of clients; by the dashboard it is that of an operator.
        if method == Method::POST && matches!(path, "/v1/jobs" | "/v1/jobs/batch") && via != AuditVia::Dashboard {
            return None;
        }
        let (action, target) = target::planned(method, path);
        Some(Pending { who: caller.name.to_string(), via, action, target, before: None })
    }

    /// Reads the target before the act.
    pub async fn read_target(&mut self, state: &AppState) {
        self.before = self.target.state(state, &self.action).await;
    }

    /// Records the act, if it was done.
    pub async fn record(self, state: &AppState, response: &mut Response) {
        let status = response.status();
        let is_unknown = response.extensions().get::<ApiError>().is_some_and(|error| error.code == "unknown_outcome");
        let noted = response.extensions_mut().remove::<Noted>().unwrap_or_default();
        if noted.is_nothing || !(status.is_success() || status.is_redirection() || is_unknown) {
            return;
        }
        let after = match noted.after {
            Some(after) => Some(after),
            None if is_unknown => Some(json!({ "outcome": "unknown" })),
            None => self.target.state(state, &self.action).await,
        };
        let action = match noted.action {
            Some(action) => action,
            None => target::done(self.action, self.before.as_ref(), after.as_ref()),
        };
        let target = noted.target.unwrap_or(self.target.name);
        let [before, after] = target::without_args(noted.before.or(self.before), after);
        store(state, self.who, self.via, &action, target, [before, after]).await;
    }
}

/// Records an act that has no route of its own among those that change something: a login.
pub async fn record(state: &AppState, caller: &Caller, via: AuditVia, action: &str) {
    store(state, caller.name.to_string(), via, action, String::new(), [None, None]).await;
}

async fn store(
    state: &AppState,
    who: String,
    via: AuditVia,
    action: &str,
    target: String,
    [before, after]: [Option<Value>; 2],
) {
    let json = |value: Option<Value>| value.and_then(|value| Json::of(&value).ok());
    let coordinator = &state.coordinator;
    let (at, node) = (coordinator.clock().now(), coordinator.node_id().clone());
    let act = Act { at, who, via, action: action.to_owned(), target, before: json(before), after: json(after), node };
    let act = act.bounded();
    if let Err(error) = coordinator.store().append_audit(act.clone()).await {
        metrics::counter!("convoke_audit_failures_total").increment(1);
        let Act { who, action, target, .. } = &act;
        let (before, after) = (act.before.as_ref().map(Json::as_str), act.after.as_ref().map(Json::as_str));
        tracing::error!(who, via = via.as_str(), action, target, before, after, %error, "recording an act failed");
    }
}

/// Returns the way by which an act came: pages by their session or path, the command line by its header.
fn via(caller: &Caller, headers: &HeaderMap, path: &str) -> AuditVia {
    if caller.identity == Identity::Session || Area::of(path) == Area::Page {
        return AuditVia::Dashboard;
    }
    let stated = headers.get(VIA_HEADER).and_then(|value| value.to_str().ok());
    AuditVia::ALL.into_iter().find(|via| Some(via.as_str()) == stated).unwrap_or(AuditVia::Api)
}
