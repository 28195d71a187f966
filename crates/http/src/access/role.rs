//! Roles, and the role that each request needs.

use std::str::FromStr;

use http::Method;
use serde::{Deserialize, Serialize};

/// The permission of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Every `GET`.
    Read,
    /// Reading, and to enqueue, cancel and retry jobs.
    Enqueue,
    /// The worker gateway.
    Worker,
    /// Everything.
    Admin,
}

impl Role {
    /// Every role.
    pub const ALL: [Role; 4] = [Role::Read, Role::Enqueue, Role::Worker, Role::Admin];

    /// Returns its name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Role::Read => "read",
            Role::Enqueue => "enqueue",
            Role::Worker => "worker",
            Role::Admin => "admin",
        }
    }

    /// Returns whether a caller of this role may send a request that needs the role `needed`.
    pub const fn may(self, needed: Role) -> bool {
        match self {
            Role::Admin => true,
            // A client that enqueues also reads the results.
            Role::Enqueue => matches!(needed, Role::Enqueue | Role::Read),
            Role::Read => matches!(needed, Role::Read),
            Role::Worker => matches!(needed, Role::Worker),
        }
    }
}

impl FromStr for Role {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let known = Role::ALL.into_iter().find(|role| role.as_str() == text);
        known.ok_or_else(|| format!("expected read, enqueue, worker or admin, got {text:?}"))
    }
}

/// The part of the server that a path belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Area {
    /// `/v1/worker/…`: for tokens alone.
    Gateway,
    /// `/v1/…` and `/metrics`: errors are JSON.
    Api,
    /// Probes, documentation, the login page and the files of pages: open to all.
    Open,
    /// A page of the dashboard, or a form of one.
    Page,
}

impl Area {
    /// Returns the area of a path.
    pub fn of(path: &str) -> Area {
        match path {
            "/livez" | "/readyz" | "/health" | "/openapi.json" | "/docs" | "/login" => Area::Open,
            "/metrics" => Area::Api,
            _ if path.starts_with("/docs/") || path.starts_with("/assets/") => Area::Open,
            _ if path.starts_with("/v1/worker/") => Area::Gateway,
            _ if path.starts_with("/v1/") => Area::Api,
            _ => Area::Page,
        }
    }
}

/// Returns whether a method only reads.
pub fn is_read(method: &Method) -> bool {
    matches!(*method, Method::GET | Method::HEAD)
}

/// Returns the role that a request needs; `None` if it is open to all. A request that is not listed needs `admin`: a
/// route that is added and forgotten here is closed, not open.
pub fn needed(method: &Method, path: &str) -> Option<Role> {
    let area = Area::of(path);
    let reads = is_read(method);
    match area {
        Area::Open if reads || (path == "/login" && method == Method::POST) => None,
        Area::Gateway => Some(Role::Worker),
        _ if reads => Some(Role::Read),
        // Everyone who has a session may end it.
        Area::Page if path == "/logout" && method == Method::POST => Some(Role::Read),
        // A form of a page needs the role of the request that it stands for.
        Area::Api | Area::Page => {
            let path = path.strip_prefix("/v1").unwrap_or(path);
            // To act on all jobs of a filter, or to delete one, needs more than to cancel one.
            let is_large = path.ends_with("/delete") || path == "/jobs/bulk";
            let of_jobs = (path == "/jobs" || path.starts_with("/jobs/")) && !is_large;
            Some(if method == Method::POST && of_jobs { Role::Enqueue } else { Role::Admin })
        }
        Area::Open => Some(Role::Admin),
    }
}
