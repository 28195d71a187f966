//! The listener: accepts connections, serves them, and shuts down.
//!
//! Connections are limited in number, in the size of a request's head and in the time that it may take to arrive. At a
//! limit of the machine (too many open files) the server waits and continues. On shutdown it stops accepting, ends
//! waiting requests, lets requests under way finish, and drops those that do not within a few seconds.

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::{IntoResponse as _, Response};
use http::Request;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::graceful::GracefulShutdown;
use metrics_exporter_prometheus::PrometheusHandle;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

use super::access::Peer;
use super::error::ApiError;
use super::stalled::StallTimeout;
use super::{Access, ApiService, AppState, recorder, system};

const CONNECTIONS_MAX: usize = 16_384;
/// Time limit of a request's head; also of an idle connection, which waits for the next head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(75);
const HEAD_BYTES_MAX: usize = 64 << 10;
const CLOSING_TIMEOUT: Duration = Duration::from_secs(5);
/// The pause after a failure to accept.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Serves until `shutdown` completes, then closes.
pub async fn serve(listener: TcpListener, state: AppState, shutdown: impl Future<Output = ()>) {
    let (api_service, metrics) = (ApiService::new(state.clone()), state.metrics.clone());
    let respond = move |request| {
        let api_service = api_service.clone();
        async move { api_service.respond(request).await }
    };
    let closing = async {
        shutdown.await;
        state.closing.cancel();
    };
    serve_requests(listener, respond, metrics, closing).await;
}

/// Serves `/metrics` and the pages that `page` returns by their path, until `shutdown` completes.
pub async fn serve_pages(
    listener: TcpListener,
    access: Access,
    metrics: PrometheusHandle,
    page: impl Fn(&str) -> Option<Response> + Clone + Send + Sync + 'static,
    shutdown: impl Future<Output = ()>,
) {
    let shown = metrics.clone();
    let respond = move |request: Request<Body>| {
        let response = match (access.check(&request), request.uri().path()) {
            (Err(refused), _) => refused.into_response(),
            (Ok(()), "/metrics") => system::page(&shown),
            (Ok(()), path) => {
                page(path).unwrap_or_else(|| ApiError::not_found(format!("{path} is not served here")).into_response())
            }
        };
        std::future::ready(response)
    };
    serve_requests(listener, respond, metrics, shutdown).await;
}

/// Serves the responses that `respond` returns, until `shutdown` completes. `respond` checks access.
pub async fn serve_requests<F, Fut>(
    listener: TcpListener,
    respond: F,
    metrics: PrometheusHandle,
    shutdown: impl Future<Output = ()>,
) where
    F: Fn(Request<Body>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let _upkeep = AbortOnDropHandle::new(tokio::spawn(recorder::upkeep(metrics)));
    let graceful = GracefulShutdown::new();
    {
        let accepting = accept(listener, respond, &graceful);
        tokio::select! {
            never = accepting => match never {},
            () = shutdown => {}
        }
    }
    let open = graceful.count();
    if tokio::time::timeout(CLOSING_TIMEOUT, graceful.shutdown()).await.is_err() {
        tracing::warn!(open, "closed with requests in progress");
    }
}

async fn accept<F, Fut>(listener: TcpListener, respond: F, graceful: &GracefulShutdown) -> Infallible
where
    F: Fn(Request<Body>) -> Fut + Clone + Send + Sync + 'static,
    Fut: Future<Output = Response> + Send + 'static,
{
    let mut http = http1::Builder::new();
    // Responses are written one by one: collecting those of pipelined requests (`pipeline_flush`) loses them, and the
    // error too, if an unreadable head follows. Head and body are still sent in one write.
    http.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT).max_buf_size(HEAD_BYTES_MAX).writev(false);
    let slots = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let slot = slots.clone().acquire_owned().await.expect("the semaphore is never closed");
        let (stream, peer) = next(&listener).await;
        let respond = respond.clone();
        let service = service_fn(move |request: Request<hyper::body::Incoming>| {
            let mut request = request.map(Body::new);
            request.extensions_mut().insert(peer);
            let response = respond(request);
            async move { Ok::<_, Infallible>(response.await) }
        });
        let connection = graceful.watch(http.serve_connection(TokioIo::new(StallTimeout::new(stream)), service));
        tokio::spawn(async move {
            // A client may end its connection in any way: by a reset, within a request, too slowly. None of these is an
            // error of the server.
            if let Err(error) = connection.await {
                tracing::trace!(%error, "connection failed");
            }
            drop(slot);
        });
    }
}

async fn next(listener: &TcpListener) -> (TcpStream, Peer) {
    loop {
        match listener.accept().await {
            Ok((stream, address)) => {
                // Responses are written whole: waiting for more gains nothing.
                if let Err(error) = stream.set_nodelay(true) {
                    tracing::debug!(%error, "connection closed before it was accepted");
                }
                return (stream, Peer(address.ip()));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting a connection failed");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}
