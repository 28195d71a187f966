//! The HTTP client under the requests: hyper, as for coordinators.
//!
//! It trusts the system's root certificates, because a bucket may be on a server with a private authority; where the system
//! has none, as in a small container, it trusts the bundled ones. `HTTPS_PROXY` and `NO_PROXY` are obeyed for `https://`.
//! Nothing is retried and no redirect is followed: the caller decides.

use std::error::Error as StdError;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use convoke_core::duration;
use http::Uri;
use http::header::{HeaderValue, USER_AGENT};
use http_body_util::BodyExt as _;
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::client::legacy::connect::proxy::Tunnel;
use hyper_util::client::proxy::matcher::Matcher;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use object_store::client::{
    ClientConfigKey, ClientOptions, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody, HttpResponse,
    HttpResponseBody,
};
use tower::Service;

const IDLE_TIMEOUT: Duration = Duration::from_secs(60);
const KEEPALIVE: Duration = Duration::from_secs(30);

type Fault = Box<dyn StdError + Send + Sync>;
type Connecting = Pin<Box<dyn Future<Output = Result<<HttpConnector as Service<Uri>>::Response, Fault>> + Send>>;

#[derive(Debug, Clone)]
pub(super) struct Client {
    inner: legacy::Client<HttpsConnector<Dial>, HttpRequestBody>,
    timeout: Option<Duration>,
}

impl Client {
    /// Returns a client that keeps the time limits of `options`, and connects without TLS only if they allow it.
    pub fn new(options: &ClientOptions) -> Result<Client, Fault> {
        Client::through(Matcher::from_env(), options)
    }

    fn through(proxies: Matcher, options: &ClientOptions) -> Result<Client, Fault> {
        let limit = |key| options.get_config_value(&key).and_then(|text| duration::parse(&text).ok());
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        tcp.set_connect_timeout(limit(ClientConfigKey::ConnectTimeout));
        tcp.set_keepalive(Some(KEEPALIVE));
        let ring = Arc::new(rustls::crypto::ring::default_provider());
        let tls = match HttpsConnectorBuilder::new().with_provider_and_native_roots(ring.clone()) {
            Ok(tls) => tls,
            Err(_) => HttpsConnectorBuilder::new().with_provider_and_webpki_roots(ring)?,
        };
        let allows_http = options.get_config_value(&ClientConfigKey::AllowHttp).is_some_and(|value| value == "true");
        let tls = if allows_http { tls.https_or_http() } else { tls.https_only() };
        let connector = tls.enable_http1().wrap_connector(Dial { tcp, proxies: Arc::new(proxies) });
        let inner = legacy::Client::builder(TokioExecutor::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(IDLE_TIMEOUT)
            .build(connector);
        Ok(Client { inner, timeout: limit(ClientConfigKey::Timeout) })
    }

    pub async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let agent = HeaderValue::from_static(concat!("convoke/", env!("CARGO_PKG_VERSION")));
        request.headers_mut().entry(USER_AGENT).or_insert(agent);
        let response = self.inner.request(request);
        let response = match self.timeout {
            None => response.await,
            Some(limit) => {
                let late = |error| HttpError::new(HttpErrorKind::Timeout, error);
                tokio::time::timeout(limit, response).await.map_err(late)?
            }
        };
        let (head, body) = response.map_err(failed)?.into_parts();
        let body = body.map_err(|error| HttpError::new(HttpErrorKind::Interrupted, error));
        Ok(HttpResponse::from_parts(head, HttpResponseBody::new(body)))
    }
}

/// `Connect` if nothing was sent.
fn failed(error: legacy::Error) -> HttpError {
    let kind = if error.is_connect() { HttpErrorKind::Connect } else { HttpErrorKind::Interrupted };
    HttpError::new(kind, error)
}

/// Connects to a server, or to the proxy in front of it.
#[derive(Clone)]
struct Dial {
    tcp: HttpConnector,
    proxies: Arc<Matcher>,
}

impl Service<Uri> for Dial {
    type Response = <HttpConnector as Service<Uri>>::Response;
    type Error = Fault;
    type Future = Connecting;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Fault>> {
        self.tcp.poll_ready(cx).map_err(Into::into)
    }

    fn call(&mut self, to: Uri) -> Connecting {
        let is_tls = to.scheme_str() == Some("https");
        let Some(proxy) = self.proxies.intercept(&to).filter(|_| is_tls) else {
            let connecting = self.tcp.call(to);
            return Box::pin(async { Ok(connecting.await?) });
        };
        let tunnel = Tunnel::new(proxy.uri().clone(), self.tcp.clone());
        let mut tunnel = match proxy.basic_auth() {
            Some(auth) => tunnel.with_auth(auth.clone()),
            None => tunnel,
        };
        let connecting = tunnel.call(to);
        Box::pin(async { Ok(connecting.await?) })
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncBufReadExt as _, BufReader};
    use tokio::net::TcpListener;

    use super::*;

    fn request(uri: &str) -> HttpRequest {
        http::Request::get(uri).body(HttpRequestBody::empty()).expect("a request")
    }

    #[tokio::test]
    async fn a_server_behind_a_proxy_is_reached_by_a_tunnel() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let proxy = format!("http://user:secret@{}", listener.local_addr().expect("an address"));
        let proxies = Matcher::builder().https(proxy).no("direct.example").build();
        let client = Client::through(proxies, &ClientOptions::new()).expect("a client");
        let asked = tokio::spawn(async move { client.send(request("https://bucket.example/state.json")).await });
        let (stream, _) = listener.accept().await.expect("a connection");
        let mut lines = BufReader::new(stream).lines();
        let mut head = Vec::new();
        while let Some(line) = lines.next_line().await.expect("text").filter(|line| !line.is_empty()) {
            head.push(line.to_ascii_lowercase());
        }
        drop(lines);
        assert_eq!(head[0], "connect bucket.example:443 http/1.1");
        assert!(head.iter().any(|line| line == "proxy-authorization: basic dxnlcjpzzwnyzxq="), "{head:?}");
        let error = asked.await.expect("no panic").expect_err("the proxy hung up");
        assert_eq!(error.kind(), HttpErrorKind::Connect, "nothing was sent: {error}");
    }

    #[tokio::test]
    async fn without_consent_nothing_goes_without_tls() {
        let client = Client::through(Matcher::builder().build(), &ClientOptions::new()).expect("a client");
        let error = client.send(request("http://127.0.0.1:1/")).await.expect_err("refused");
        assert_eq!(error.kind(), HttpErrorKind::Connect);
    }

    #[test]
    fn time_limits_are_those_of_the_options() {
        let options = ClientOptions::new().with_timeout(Duration::from_secs(30));
        let client = Client::new(&options).expect("a client");
        assert_eq!(client.timeout, Some(Duration::from_secs(30)));
    }
}
