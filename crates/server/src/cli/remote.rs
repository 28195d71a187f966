//! The server that a command sends its requests to.

use std::pin::pin;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use clap::Args;
use convoke::{Unreachable, encode};
use convoke_core::Error;
use http::{Method, StatusCode};
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A request that takes longer than this is mentioned on standard error.
const NOTICE_AFTER: Duration = Duration::from_secs(2);

/// A wrong command line: exit code 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct Usage(pub String);

/// Converts an error: an invalid address or number is a wrong command line.
pub fn usage(error: convoke_core::Error) -> anyhow::Error {
    match error {
        convoke_core::Error::Invalid(invalid) => Usage(invalid.to_string()).into(),
        error => match Unreachable::of(&error) {
            Some(unreachable) => unreachable.by(flag(unreachable.setting())).into(),
            None => error.into(),
        },
    }
}

/// The flag with the server's address.
fn flag(setting: &str) -> &str {
    match setting {
        "store.url" => "--store",
        "bus.url" => "--bus",
        "leases.url" => "--leases",
        "mesh.url" => "--redis",
        "url" => "--server",
        other => other,
    }
}

#[derive(Debug, Clone, Args)]
pub struct RemoteArgs {
    /// Address of the server
    #[arg(
        long,
        global = true,
        env = "CONVOKE_SERVER",
        hide_env_values = true,
        value_name = "URL",
        default_value = "http://127.0.0.1:3000"
    )]
    pub server: String,
    /// Token, if the server requires one
    #[arg(long, global = true, env = "CONVOKE_TOKEN", hide_env_values = true)]
    pub token: Option<String>,
    /// Print the server's JSON
    #[arg(long, global = true)]
    pub json: bool,
}

/// A server, and how to print its responses.
pub struct Remote {
    http: convoke::Http,
    server: String,
    verbose: bool,
    pub json: bool,
}

/// A response as it was sent.
pub struct RemoteResponse(Bytes);

impl RemoteResponse {
    pub fn text(&self) -> std::borrow::Cow<'_, str> {
        String::from_utf8_lossy(&self.0)
    }

    pub fn value(&self) -> Result<Value> {
        if self.0.is_empty() {
            return Ok(Value::Null);
        }
        serde_json::from_slice(&self.0).context("expected JSON from the server: is this the address of convoke?")
    }
}

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum CallError {
    /// The server did not respond.
    #[error("the server at {server} cannot be reached: {cause}")]
    Unreachable { server: String, cause: String },
    /// The server rejected the request.
    #[error("{message}")]
    Refused { status: StatusCode, message: String },
    /// The server returned no stream.
    #[error(transparent)]
    NoStream(Error),
}

impl CallError {
    /// Returns whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        match self {
            CallError::Unreachable { .. } => true,
            CallError::NoStream(_) => false,
            CallError::Refused { status, .. } => {
                matches!(*status, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS)
            }
        }
    }
}

/// Returns a client of the server. A wrong address or token is a wrong command line.
pub fn connect(args: &RemoteArgs) -> Result<convoke::Http, Usage> {
    let token = args.token.clone().filter(|token| !token.is_empty());
    let http = convoke::Http::connect(&args.server, token).map_err(|error| match error {
        Error::Invalid(invalid) if invalid.field == "token" => Usage(format!("--token: {}", invalid.message)),
        Error::Invalid(invalid) => Usage(format!("--server: {}", invalid.message)),
        other => Usage(format!("--server {}: {other}", args.server)),
    })?;
    Ok(http.via("cli"))
}

impl Remote {
    pub fn new(args: &RemoteArgs, verbose: u8) -> Result<Self> {
        let http = connect(args)?;
        Ok(Remote { http, server: args.server.clone(), verbose: verbose > 0, json: args.json })
    }

    pub async fn get(&self, path: &str) -> Result<RemoteResponse> {
        Ok(self.call(Method::GET, path, None).await?)
    }

    pub async fn post(&self, path: &str, body: &impl Serialize) -> Result<RemoteResponse> {
        self.send(Method::POST, path, body).await
    }

    pub async fn send(&self, method: Method, path: &str, body: &impl Serialize) -> Result<RemoteResponse> {
        let body = serde_json::to_vec(body).context("the request cannot be written as JSON")?;
        Ok(self.call(method, path, Some(body.into())).await?)
    }

    pub async fn delete(&self, path: &str) -> Result<RemoteResponse> {
        Ok(self.call(Method::DELETE, path, None).await?)
    }

    pub async fn call(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<RemoteResponse, CallError> {
        let (started, shown) = (Instant::now(), method.clone());
        // Longer than any wait that a command requests from the server.
        let limit = Duration::from_secs(60);
        let mut sending = pin!(self.http.send_within(limit, method, path, body));
        let result = match tokio::time::timeout(NOTICE_AFTER, &mut sending).await {
            Ok(result) => result,
            Err(_) => {
                // Not for a command that requested the wait.
                if !path.contains("wait=") {
                    eprintln!("waiting for the server at {} (--server)", self.server);
                }
                sending.await
            }
        };
        if self.verbose {
            let outcome = result.as_ref().map_or_else(ToString::to_string, |(status, _)| status.to_string());
            eprintln!("{shown} {}{path}: {outcome} in {} ms", self.server, started.elapsed().as_millis());
        }
        let (status, body) = result.map_err(|error| self.unreachable(error))?;
        if status.is_success() { Ok(RemoteResponse(body)) } else { Err(self.refused(status, &body)) }
    }

    pub async fn events(&self, path: &str) -> Result<convoke::EventStream, CallError> {
        self.http.sse(path).await.map_err(|error| match error {
            error if error.is_transient() => self.unreachable(error),
            error => CallError::NoStream(error),
        })
    }

    fn unreachable(&self, error: Error) -> CallError {
        let cause = match error {
            Error::Unavailable { source, .. } | Error::Unknown { source, .. } => source.to_string(),
            other => other.to_string(),
        };
        // The cause may begin with the address, which the message has already.
        let cause = cause.strip_prefix(&format!("{}: ", self.http.address())).map(str::to_owned).unwrap_or(cause);
        CallError::Unreachable { server: self.server.clone(), cause }
    }

    fn refused(&self, status: StatusCode, body: &[u8]) -> CallError {
        #[derive(Deserialize)]
        struct Body {
            error: Detail,
        }
        #[derive(Deserialize)]
        struct Detail {
            message: String,
            field: Option<String>,
        }
        let message = match serde_json::from_slice::<Body>(body) {
            Ok(Body { error: Detail { message, field: Some(field) } }) if !message.starts_with(&field) => {
                format!("{field}: {message}")
            }
            Ok(Body { error }) => error.message,
            Err(_) => format!("the server at {} returned {status}", self.server),
        };
        let hint = if status == StatusCode::UNAUTHORIZED { " (set --token or CONVOKE_TOKEN)" } else { "" };
        CallError::Refused { status, message: format!("{message}{hint}") }
    }
}

/// An outage of the server, for example during a restart. A short one must not fail the command.
#[derive(Debug, Default)]
pub struct Outage {
    since: Option<Instant>,
}

impl Outage {
    const LONGEST: Duration = Duration::from_secs(60);

    /// Returns whether to retry the call after this error.
    pub fn is_bearable(&mut self, error: &CallError) -> bool {
        error.is_transient() && self.since.get_or_insert_with(Instant::now).elapsed() < Outage::LONGEST
    }

    pub fn end(&mut self) {
        self.since = None;
    }
}

/// Returns a path with the parameters that are set.
pub fn query<'a>(path: &str, parameters: impl IntoIterator<Item = (&'a str, Option<String>)>) -> String {
    let mut text = path.to_owned();
    let mut mark = '?';
    for (name, value) in parameters {
        if let Some(value) = value {
            text.push_str(&format!("{mark}{name}={}", encode(&value)));
            mark = '&';
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_encoded_and_absent_ones_left_out() {
        let path = query("/v1/jobs", [("queue", Some("a&b".into())), ("type", None), ("limit", Some("5".into()))]);
        assert_eq!(path, "/v1/jobs?queue=a%26b&limit=5");
    }

    #[tokio::test]
    async fn a_server_that_cannot_be_reached_is_named() {
        // Bound and dropped, so nothing listens there.
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let server = format!("http://{}", listener.local_addr().expect("an address"));
        drop(listener);
        let args = RemoteArgs { server: server.clone(), token: None, json: false };
        let remote = Remote::new(&args, 0).expect("a valid address");
        let error = remote.get("/v1/jobs").await.err().expect("refused").to_string();
        assert!(error.starts_with(&format!("the server at {server} cannot be reached: ")), "{error}");
    }

    #[tokio::test]
    async fn a_backend_that_cannot_be_reached_is_named_with_its_flag() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bound");
        let address = listener.local_addr().expect("an address");
        drop(listener);
        let url = format!("redis://:secret@{address}");
        let error = convoke::connect::leases(&url, "p").await.err().expect("refused");
        let expected = format!("cannot connect to Redis at {address} (--leases): connection refused");
        assert_eq!(usage(error).to_string(), expected);
    }

    #[tokio::test]
    async fn a_refusal_names_the_field_once() {
        let args = RemoteArgs { server: "http://127.0.0.1:1".into(), token: None, json: false };
        let remote = Remote::new(&args, 0).expect("a valid address");
        let shown = |body: &str| remote.refused(StatusCode::BAD_REQUEST, body.as_bytes()).to_string();
        assert_eq!(shown(r#"{"error":{"code":"x","message":"expected 1","field":"delay"}}"#), "delay: expected 1");
        assert_eq!(shown(r#"{"error":{"code":"x","message":"delay: not so","field":"delay"}}"#), "delay: not so");
        assert_eq!(shown(r#"{"error":{"code":"x","message":"no"}}"#), "no");
        assert_eq!(shown("<html>"), "the server at http://127.0.0.1:1 returned 400 Bad Request");
    }
}
