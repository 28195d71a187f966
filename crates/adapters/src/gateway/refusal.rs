//! Maps a server's rejection to an error.

use convoke_core::error::InvalidKind;
use convoke_core::{Error, Invalid};
use http::StatusCode;
use serde::Deserialize;

#[derive(Debug, Default, Deserialize)]
struct Body {
    error: Detail,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Detail {
    code: String,
    message: String,
    field: Option<String>,
}

/// Returns the error for a reply that is not a success.
pub(super) fn error(status: StatusCode, path: &str, body: &[u8]) -> Error {
    let detail = serde_json::from_slice::<Body>(body).ok().map(|body| body.error);
    let understood = detail.is_some();
    let Detail { code, mut message, field } = detail.unwrap_or_default();
    if message.is_empty() {
        message = format!("the server responded {status} to {}", bare(path));
    }
    let invalid = |kind| {
        let field = field.clone().unwrap_or_else(|| "request".into());
        Error::Invalid(Invalid::new(field, message.clone()).of_kind(kind))
    };
    match status {
        StatusCode::UNAUTHORIZED => Error::denied(format!("the server requires a valid token: {message}")),
        StatusCode::FORBIDDEN => Error::denied(format!("the role of the token does not permit this: {message}")),
        StatusCode::NOT_FOUND if !understood => {
            let what = format!("{} does not exist: is this the address of a Convoke server?", bare(path));
            Error::Invalid(Invalid::new("url", what))
        }
        StatusCode::NOT_FOUND => {
            let (what, id) = subject(path, &code);
            Error::NotFound { what, id }
        }
        StatusCode::CONFLICT if code == "fenced" => Error::Fenced { what: "the request" },
        StatusCode::CONFLICT => Error::Conflict(message),
        StatusCode::PAYLOAD_TOO_LARGE => invalid(InvalidKind::TooLarge),
        StatusCode::UNPROCESSABLE_ENTITY => invalid(InvalidKind::Unprocessable),
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
            Error::unavailable("the coordinator", message)
        }
        _ if status.is_server_error() => Error::unknown("the coordinator", message),
        _ => invalid(InvalidKind::Argument),
    }
}

/// Returns the path without its query, which may contain secrets.
fn bare(path: &str) -> &str {
    path.split('?').next().unwrap_or(path)
}

/// Returns the kind and name of the missing object, derived from the path.
fn subject(path: &str, code: &str) -> (&'static str, String) {
    let mut parts = bare(path).trim_start_matches('/').split('/').skip(1);
    let what = match parts.next().unwrap_or_default() {
        "worker" => "worker",
        _ if code == "unknown_worker" => "worker",
        "jobs" => "job",
        "schedules" => "schedule",
        "queues" => "queue",
        "shards" => "service",
        _ => "resource",
    };
    (what, parts.next().unwrap_or_default().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refused(status: u16, path: &str, body: &str) -> Error {
        error(StatusCode::from_u16(status).expect("a status"), path, body.as_bytes())
    }

    #[test]
    fn each_status_is_the_error_its_caller_can_act_on() {
        let body = r#"{"error":{"code":"x","message":"m","field":"delay"}}"#;
        let kind = |status| match refused(status, "/v1/jobs/7", body) {
            Error::Invalid(invalid) => format!("{:?} {}", invalid.kind, invalid),
            Error::NotFound { what, id } => format!("no {what} {id}"),
            Error::Conflict(message) => format!("conflict {message}"),
            Error::Unavailable { .. } => "unavailable".into(),
            Error::Unknown { .. } => "unknown".into(),
            other => format!("{other:?}"),
        };
        assert_eq!(kind(400), "Argument delay: m");
        assert_eq!(kind(413), "TooLarge delay: m");
        assert_eq!(kind(422), "Unprocessable delay: m");
        assert_eq!(kind(404), "no job 7");
        assert_eq!(kind(409), "conflict m");
        assert_eq!(kind(429), "unavailable");
        assert_eq!(kind(503), "unavailable");
        assert_eq!(kind(500), "unknown");
        assert_eq!(kind(502), "unknown");
    }

    #[test]
    fn a_refused_token_is_told_from_a_refused_request() {
        assert!(refused(401, "/v1/jobs", "{}").is_denied());
        assert!(refused(403, "/v1/jobs", r#"{"error":{"code":"forbidden","message":"m"}}"#).is_denied());
        assert!(!refused(400, "/v1/jobs", "{}").is_denied());
    }

    #[test]
    fn an_unknown_worker_is_not_found_and_a_foreign_server_is_a_wrong_address() {
        let body = r#"{"error":{"code":"unknown_worker","message":"m"}}"#;
        assert!(matches!(refused(404, "/v1/worker/poll", body), Error::NotFound { what: "worker", .. }));
        let error = refused(404, "/v1/worker/poll?secret", "<html>").to_string();
        assert!(error.starts_with("url: ") && !error.contains("secret"), "{error}");
    }
}
