//! A small HTTP/1.1 JSON client over pooled connections.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use convoke_core::{Error, Invalid, Result};
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, USER_AGENT};
use http::{Method, Request, Response, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::base::{Base, Bases};
use super::refusal;
use super::sse::EventStream;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_TIMEOUT: Duration = Duration::from_secs(30);
const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const RESPONSE_BYTES_MAX: usize = 256 << 20;

const COORDINATOR: &str = "the coordinator";

/// A client of a coordinator, or of several of one cluster: if one cannot be reached it uses the next, and stays with
/// the one that replies. Cheap to clone; clones share their connections.
#[derive(Clone)]
pub struct Http {
    client: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
    bases: Arc<Bases>,
    authorization: Option<HeaderValue>,
    via: Option<&'static str>,
}

impl Http {
    /// Checks the address, or the addresses separated by commas, and the token. The first request makes a connection.
    pub fn connect(url: &str, token: Option<String>) -> Result<Http> {
        let bases = Arc::new(Bases::parse(url)?);
        let authorization = token.map(|token| bearer(&token)).transpose()?;
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
        tcp.set_keepalive(Some(Duration::from_secs(30)));
        let connector = HttpsConnectorBuilder::new()
            // Named, because a process may have another provider compiled in and then has no default.
            .with_provider_and_webpki_roots(rustls::crypto::ring::default_provider())
            .map_err(|error| Error::unavailable("TLS", error))?
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let client = Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Http { client, bases, authorization, via: None })
    }

    /// Returns the client with the name that the audit shows for its requests: `cli`.
    pub fn via(self, via: &'static str) -> Http {
        Http { via: Some(via), ..self }
    }

    /// Returns the address in use, for messages. It contains no secret.
    pub fn address(&self) -> String {
        self.bases.current().1.to_string()
    }

    /// Returns the status and the body, whatever they are. `path` begins with a slash; names in it are
    /// [encoded](super::encode).
    pub async fn send(&self, method: Method, path: &str, body: Option<Bytes>) -> Result<(StatusCode, Bytes)> {
        self.send_within(REQUEST_TIMEOUT, method, path, body).await
    }

    /// Like [`send`](Self::send), with a time limit for the whole request: a long poll takes longer than other
    /// requests.
    pub async fn send_within(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<(StatusCode, Bytes)> {
        let safe = method.is_safe();
        let (place, base) = self.bases.current();
        let exchange = async {
            let response = self.request(method, path, body, "application/json").await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| lost(safe, error))?;
            Ok((status, body.to_bytes()))
        };
        match tokio::time::timeout(limit, exchange).await {
            Ok(result) => result,
            Err(_) => {
                self.bases.leave(place);
                Err(lost(safe, format!("no reply from {base} within {limit:?}")))
            }
        }
    }

    /// Returns a JSON reply, or the error that the server's rejection means.
    pub async fn json<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<T> {
        self.json_within(REQUEST_TIMEOUT, method, path, body).await.map(|(_, response)| response)
    }

    pub async fn json_within<T: DeserializeOwned>(
        &self,
        limit: Duration,
        method: Method,
        path: &str,
        body: Option<&impl Serialize>,
    ) -> Result<(StatusCode, T)> {
        let body = body.map(serde_json::to_vec).transpose();
        let body = body.map_err(|error| Invalid::new("body", format!("cannot be written as JSON: {error}")))?;
        let (status, response) = self.send_within(limit, method, path, body.map(Bytes::from)).await?;
        if !status.is_success() {
            return Err(refusal::error(status, path, &response));
        }
        // An empty reply reads as null, so that a caller can ask for `()` if the server returns no body.
        let text: &[u8] = if response.is_empty() { b"null" } else { &response };
        match serde_json::from_slice(text) {
            Ok(response) => Ok((status, response)),
            Err(error) => Err(Error::unknown(COORDINATOR, format!("unreadable reply to {path}: {error}"))),
        }
    }

    /// Opens a stream of server-sent events. It has no time limit: it ends when the server ends it or the connection
    /// breaks.
    pub async fn sse(&self, path: &str) -> Result<EventStream> {
        let request = self.request(Method::GET, path, None, "text/event-stream");
        let (place, base) = self.bases.current();
        let Ok(response) = tokio::time::timeout(REQUEST_TIMEOUT, request).await else {
            self.bases.leave(place);
            return Err(lost(true, format!("no reply from {base} within {REQUEST_TIMEOUT:?}")));
        };
        let response = response?;
        let status = response.status();
        if !status.is_success() {
            let body = Limited::new(response.into_body(), RESPONSE_BYTES_MAX).collect().await;
            let body = body.map_err(|error| lost(true, error))?;
            return Err(refusal::error(status, path, &body.to_bytes()));
        }
        Ok(EventStream::new(response.into_body()))
    }

    /// Sends to the node that replied last, and to the others in turn if no connection can be made, since then nothing
    /// was sent.
    async fn request(
        &self,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        accept: &'static str,
    ) -> Result<Response<Incoming>> {
        let mut tries = self.bases.len();
        loop {
            let (place, base) = self.bases.current();
            let response = self.request_of(base, method.clone(), path, body.clone(), accept).await;
            tries -= 1;
            match response {
                Ok(response) => {
                    // It is draining, or cannot reach its store: another node may serve the request.
                    if response.status() == StatusCode::SERVICE_UNAVAILABLE {
                        self.bases.leave(place);
                    }
                    return Ok(response);
                }
                Err(error) => {
                    if error.is_transient() {
                        self.bases.leave(place);
                    }
                    let nothing_happened = matches!(error, Error::Unavailable { .. });
                    if !nothing_happened || tries == 0 {
                        return Err(error);
                    }
                }
            }
        }
    }

    async fn request_of(
        &self,
        base: &Base,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        accept: &'static str,
    ) -> Result<Response<Incoming>> {
        let safe = method.is_safe();
        let mut request = Request::builder()
            .method(method)
            .uri(base.join(path)?)
            .header(ACCEPT, accept)
            .header(USER_AGENT, concat!("convoke/", env!("CARGO_PKG_VERSION")));
        if body.is_some() {
            request = request.header(CONTENT_TYPE, "application/json");
        }
        if let Some(authorization) = &self.authorization {
            request = request.header(AUTHORIZATION, authorization);
        }
        if let Some(via) = self.via {
            request = request.header("x-convoke-via", via);
        }
        let request = request.body(Full::new(body.unwrap_or_default()));
        let request = request.map_err(|error| Invalid::new("path", error.to_string()))?;
        self.client.request(request).await.map_err(|error| {
            let message = format!("{base}: {}", causes(&error));
            if error.is_connect() { Error::unavailable(COORDINATOR, message) } else { lost(safe, message) }
        })
    }
}

impl std::fmt::Debug for Http {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Http").field(&self.address()).finish()
    }
}

fn bearer(token: &str) -> Result<HeaderValue> {
    let refuse = |_| Error::denied("expected a token of visible ASCII characters");
    let mut value = HeaderValue::from_str(&format!("Bearer {token}")).map_err(refuse)?;
    value.set_sensitive(true);
    Ok(value)
}

/// Returns the error of a request that may have been sent and has no reply: a read changed nothing, others may have.
fn lost(safe: bool, source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    if safe { Error::unavailable(COORDINATOR, source) } else { Error::unknown(COORDINATOR, source) }
}

/// Returns an error with its causes in one line: hyper's own text does not name the cause.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text.push_str(": ");
        text.push_str(&error.to_string());
        cause = error.source();
    }
    text
}
