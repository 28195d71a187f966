//! The frame of every page: who looks at it, where it is mounted, its header, its navigation and its headers.
//!
//! A handler receives a [`Frame`], makes a [`Page`] of it and puts that into its template, which extends `base.html`.

use std::convert::Infallible;

use askama::Template;
use axum::extract::FromRequestParts;
use axum::response::{Html, IntoResponse, Response};
use convoke_core::jobs::HidePayloads;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, StatusCode};
use jiff::Timestamp;

use super::{Color, assets};
use crate::access::{Caller, CsrfToken, Identity, Role};
use crate::body::Params;
use crate::error::{ApiError, ApiResult};
use crate::mount::Prefix;
use crate::{Access, AppState};

/// Nothing but this server's own files: no inline script or style, no other origin, no frame around a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; \
                      form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// The person or program that sends a request.
#[derive(Debug, Clone)]
pub struct Viewer {
    /// The name of the token; `None` on a server without tokens.
    pub name: Option<String>,
    /// Whether it may enqueue, cancel and retry jobs.
    pub may_act: bool,
    /// Whether it may change queues, schedules and nodes, and delete jobs.
    pub may_admin: bool,
    /// Whether arguments, results and logs are hidden from it.
    pub payloads_hidden: bool,
    /// Whether it has a session, which it can end.
    pub has_session: bool,
    /// The token that its forms must carry.
    pub csrf: String,
}

impl Viewer {
    /// Returns what the viewer may see of a value.
    pub fn shown<T: HidePayloads>(&self, mut value: T) -> T {
        if self.payloads_hidden {
            value.hide_payloads();
        }
        value
    }
}

/// Returns who sent a request, as the check of access found out.
pub fn viewer(parts: &Parts) -> Viewer {
    let csrf = parts.extensions.get::<CsrfToken>().map(|token| token.0.clone()).unwrap_or_default();
    let Some(caller) = Caller::of(&parts.extensions) else {
        let (may_act, may_admin, payloads_hidden, has_session) = (false, false, true, false);
        return Viewer { name: None, may_act, may_admin, payloads_hidden, has_session, csrf };
    };
    Viewer {
        name: (caller.identity != Identity::Open).then(|| caller.name.to_string()),
        may_act: caller.role.may(Role::Enqueue),
        may_admin: caller.role.may(Role::Admin),
        payloads_hidden: caller.payloads_hidden,
        has_session: caller.identity == Identity::Session,
        csrf,
    }
}

/// A link of the navigation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub path: &'static str,
    pub label: &'static str,
    /// The key after `g` that opens it.
    pub key: char,
    /// Kinds of events after which the page is read again, as for `/v1/events`.
    pub events: &'static str,
}

pub const OVERVIEW: Place = Place { path: "/", label: "Overview", key: 'o', events: "job,worker,node,leader,handoff" };
pub const JOBS: Place = Place { path: "/jobs", label: "Jobs", key: 'j', events: "job" };
pub const DEAD_LETTERS: Place = Place { path: "/dead-letters", label: "Dead letters", key: 'd', events: "job" };
pub const SCHEDULES: Place = Place { path: "/schedules", label: "Schedules", key: 's', events: "schedule" };
pub const QUEUES: Place = Place { path: "/queues", label: "Queues", key: 'q', events: "job,worker" };
pub const WORKERS: Place = Place { path: "/workers", label: "Workers", key: 'w', events: "job,worker" };

pub const CLUSTER: Place =
    Place { path: "/cluster", label: "Cluster", key: 'c', events: "node,leader,handoff,contention" };
pub const SHARDS: Place = Place { path: "/shards", label: "Shards", key: 'h', events: "shards,leader" };
pub const ELECTIONS: Place = Place { path: "/elections", label: "Elections", key: 'e', events: "leader" };
pub const MESH: Place = Place { path: "/mesh", label: "Mesh", key: 'm', events: "" };
pub const ACTIVITY: Place = Place { path: "/activity", label: "Activity", key: 'y', events: "" };

/// The navigation, in its order: a group for work, one for the fleet.
pub const NAVIGATION: [&[Place]; 2] =
    [&[OVERVIEW, JOBS, DEAD_LETTERS, SCHEDULES, QUEUES, WORKERS], &[CLUSTER, SHARDS, ELECTIONS, ACTIVITY]];

/// The same, on a node that knows a Redis with meshes.
pub const NAVIGATION_WITH_MESH: [&[Place]; 2] = [NAVIGATION[0], &[CLUSTER, SHARDS, MESH, ELECTIONS, ACTIVITY]];

/// Messages about an action that succeeded: `?notice=CODE&n=COUNT` of the page that a form leads to. A text that is not
/// in this list is never shown, so that no link can put words into a page.
const NOTICES: [(&str, &str); 18] = [
    ("draining", "The node drains: it hands its runs over and exits."),
    ("cancelled", "The job is cancelled."),
    ("retried", "The job is pending again."),
    ("enqueued", "The job is enqueued."),
    ("exists", "A job with this unique key is live: this is that job."),
    ("deleted", "The job is deleted."),
    ("jobs-cancelled", "Jobs that were cancelled: {n}."),
    ("jobs-retried", "Jobs that are pending again: {n}."),
    ("jobs-deleted", "Jobs that were deleted: {n}."),
    ("schedule-saved", "The schedule is saved."),
    ("schedule-paused", "The schedule is paused."),
    ("schedule-resumed", "The schedule is resumed."),
    ("schedule-removed", "The schedule is removed. Jobs that it made stay."),
    ("triggered", "The schedule's job is enqueued, beside its ticks."),
    ("queue-paused", "The queue is paused: its jobs stay pending."),
    ("queue-resumed", "The queue is resumed."),
    ("queue-limited", "The limits of the queue are saved."),
    ("queue-deleted", "The queue is deleted."),
];

/// The facts of a request that every page shows.
#[derive(Debug, Clone)]
pub struct Frame {
    pub viewer: Viewer,
    /// Whether the request may read more than the documentation.
    pub may_read: bool,
    pub prefix: String,
    /// The scheme and the host of the request, for commands that are shown.
    origin: String,
    has_tokens: bool,
    has_mesh: bool,
    instance: String,
    color: Color,
    node: String,
    version: String,
    pulse: Pulse,
    notice: Option<String>,
    now: Timestamp,
}

/// The state of this node in a word and a sentence, in the header of every page.
#[derive(Debug, Clone)]
pub struct Pulse {
    pub is_well: bool,
    pub text: String,
}

impl Pulse {
    fn of(state: &AppState) -> Self {
        let leadership = state.coordinator.cluster();
        match (state.coordinator.unready(), leadership.leader) {
            (Some(why), _) => Pulse { is_well: false, text: why.into() },
            (None, None) => Pulse { is_well: false, text: format!("nobody leads since epoch {}", leadership.epoch) },
            (None, Some(leader)) => {
                Pulse { is_well: true, text: format!("{leader} leads, epoch {}", leadership.epoch) }
            }
        }
    }
}

impl Frame {
    /// Returns the frame of a request.
    pub fn of(state: &AppState, parts: &Parts) -> Self {
        let node = state.coordinator.node_id().to_string();
        let settings = &state.site.dashboard;
        let may_read = Caller::may_read(&parts.extensions);
        // The name of a node is shown only to requests that may read.
        let unnamed = || if may_read { node.clone() } else { "Convoke".into() };
        Frame {
            viewer: viewer(parts),
            may_read,
            prefix: Prefix::of(&parts.extensions).to_owned(),
            origin: origin(parts),
            has_tokens: matches!(state.access.access, Access::Tokens(_)),
            has_mesh: state.meshes.is_some(),
            instance: settings.name.clone().unwrap_or_else(unnamed),
            color: settings.color,
            node,
            version: state.info.version.clone(),
            pulse: Pulse::of(state),
            notice: notice(parts),
            now: state.coordinator.clock().now(),
        }
    }

    /// Returns the command that sends a request of the API, to be typed in a terminal.
    pub fn curl(&self, method: &str, path: &str) -> String {
        let method = if method == "GET" { String::new() } else { format!(" -X {method}") };
        let token = if self.has_tokens { " -H \"Authorization: Bearer $CONVOKE_TOKEN\"" } else { "" };
        let url = format!("{}{}{path}", self.origin, self.prefix).replace('\'', "'\\''");
        format!("curl -s{method}{token} '{url}'")
    }

    /// Returns the command that sends a request with a body.
    pub fn curl_with(&self, method: &str, path: &str, body: &str) -> String {
        format!("{} -d '{}'", self.curl(method, path), body.replace('\'', "'\\''"))
    }

    /// Returns the frame around a page of `place`.
    pub fn page(&self, place: Place, title: impl Into<String>) -> Page {
        Page {
            title: title.into(),
            place,
            assets: format!("{}/assets/{}", self.prefix, assets::hash()),
            frame: self.clone(),
            is_live: true,
        }
    }
}

/// Returns the scheme and the host by which the client reached the server, or a proxy before it.
fn origin(parts: &Parts) -> String {
    let header = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok());
    let host = parts.uri.authority().map(|host| host.as_str()).or_else(|| header("host")).unwrap_or("127.0.0.1:3000");
    let scheme = header("x-forwarded-proto").filter(|scheme| *scheme == "https").unwrap_or("http");
    format!("{scheme}://{host}")
}

fn notice(parts: &Parts) -> Option<String> {
    let mut params = Params::of(&parts.uri).ok()?;
    let code = params.text("notice").ok()??;
    let count = params.parse::<u64>("n").ok().flatten().unwrap_or(0);
    let (_, text) = NOTICES.iter().find(|(known, _)| *known == code)?;
    Some(text.replace("{n}", &super::text::count(count)))
}

impl FromRequestParts<AppState> for Frame {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, state: &AppState) -> Result<Self, Infallible> {
        Ok(parts.extensions.get::<Frame>().cloned().unwrap_or_else(|| Frame::of(state, parts)))
    }
}

/// The frame of one page, for its template.
pub struct Page {
    pub title: String,
    pub place: Place,
    /// The path of the assets, with the prefix.
    pub assets: String,
    frame: Frame,
    /// Whether the page is read again after events.
    pub is_live: bool,
}

impl Page {
    /// Returns the path before every path of this server.
    pub fn prefix(&self) -> &str {
        &self.frame.prefix
    }

    pub fn viewer(&self) -> &Viewer {
        &self.frame.viewer
    }

    pub fn may_read(&self) -> bool {
        self.frame.may_read
    }

    pub fn instance(&self) -> &str {
        &self.frame.instance
    }

    pub fn color(&self) -> Color {
        self.frame.color
    }

    pub fn node(&self) -> &str {
        &self.frame.node
    }

    pub fn version(&self) -> &str {
        &self.frame.version
    }

    /// Returns the server's time, in milliseconds since 1970: the script shows ages by it.
    pub fn now_ms(&self) -> i64 {
        self.frame.now.as_millisecond()
    }

    pub fn pulse(&self) -> &Pulse {
        &self.frame.pulse
    }

    pub fn notice(&self) -> Option<&str> {
        self.frame.notice.as_deref()
    }

    /// Returns the kinds of events after which the page is read again; empty if it is not.
    pub fn events(&self) -> &str {
        if self.is_live && self.frame.may_read { self.place.events } else { "" }
    }

    pub fn navigation(&self) -> &'static [&'static [Place]] {
        match (self.frame.may_read, self.frame.has_mesh) {
            (false, _) => &[],
            (true, false) => &NAVIGATION,
            (true, true) => &NAVIGATION_WITH_MESH,
        }
    }

    /// Returns the page without refreshes.
    pub fn at_rest(mut self) -> Self {
        self.is_live = false;
        self
    }
}

/// Returns the response of a page.
pub fn render(template: &impl Template) -> ApiResult {
    render_with(StatusCode::OK, template)
}

/// Returns the response of a page with another status.
pub fn render_with(status: StatusCode, template: &impl Template) -> ApiResult {
    let text = template.render().map_err(|error| {
        // Templates write to memory: only a `Display` that fails gets here.
        ApiError::new(StatusCode::INTERNAL_SERVER_ERROR, "internal", format!("the page was not rendered: {error}"))
    })?;
    Ok((status, Html(text)).into_response())
}

/// Returns a redirect to a page of this server, after a form. The prefix is added when it is sent.
pub fn see_other(path: &str) -> ApiResult {
    let location = HeaderValue::try_from(path)
        .map_err(|_| ApiError::invalid("path", format!("expected a path of this server, got {path:?}")))?;
    Ok((StatusCode::SEE_OTHER, [(http::header::LOCATION, location)]).into_response())
}

/// Adds the headers that every response of the dashboard has.
pub fn secure(response: &mut Response) {
    let headers: &mut HeaderMap = response.headers_mut();
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(REFERRER_POLICY, HeaderValue::from_static("same-origin"));
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
}
