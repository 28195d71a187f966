//! The routes in an application's own server.

use std::net::SocketAddr;
use std::sync::Arc;

use axum::Router;
use axum::extract::Request;
use axum::http::Method;
use axum::middleware::map_request;
use axum::routing::get;
use convoke::coordinator::Role;
use convoke::{Client, Coordinator, Worker};
use tokio::net::TcpListener;
use tokio::sync::{Notify, oneshot};

use super::{Double, Running, double, in_time};

#[tokio::test(flavor = "multi_thread")]
async fn clients_and_workers_connect_to_the_path_and_the_server_shuts_down_gracefully() {
    let coordinator = Arc::new(Coordinator::builder().store("memory:").start().await.expect("it starts"));
    assert_eq!(coordinator.address(), None);
    let arrived = Arc::new(Notify::new());
    let notify = arrived.clone();
    let app = Router::new().route("/", get(|| async { "mine" })).nest("/convoke", coordinator.router());
    let app = app.layer(map_request(move |request: Request| {
        if request.uri().query() == Some("wait=29s") {
            notify.notify_one();
        }
        std::future::ready(request)
    }));
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let address = listener.local_addr().expect("an address");
    let (shut_down, shutting_down) = oneshot::channel::<()>();
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let leaving = coordinator.clone();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        drop(shutting_down.await);
        leaving.drain().await.expect("it is clean");
    });
    let server = tokio::spawn(async move { server.await });

    let url = format!("http://{address}/convoke");
    let worker = Worker::connect(&url).await.expect("an address").queues(["default"]).handle(double);
    let worker = Running::start(worker);
    let client = Client::connect(&url).await.expect("an address");
    let handle = client.enqueue(Double(4)).await.expect("enqueued");
    assert_eq!(in_time("the result", handle.wait()).await.expect("it completes"), 8);
    let page = convoke::connect::http(&format!("http://{address}"), None).expect("an address");
    let (status, body) = page.send(Method::GET, "/", None).await.expect("a response");
    assert_eq!((status.as_u16(), &*body), (200, &b"mine"[..]));
    worker.stop().await;

    // Neither a stream of events nor a request that waits holds up the end.
    let mut events = page.sse("/convoke/v1/events").await.expect("a stream");
    let waits = client.enqueue(Double(5)).queue("nobody").await.expect("enqueued");
    let waiting = tokio::spawn(async move {
        page.send(Method::GET, &format!("/convoke/v1/jobs/{}?wait=29s", waits.id()), None).await
    });
    in_time("the request that waits", arrived.notified()).await;
    shut_down.send(()).expect("it waits for that");
    in_time("the end of the server", server).await.expect("it does not panic").expect("it serves");
    in_time("the end of the stream", async { while let Ok(Some(_)) = events.next().await {} }).await;
    in_time("the response", waiting).await.expect("it does not panic").expect("a response");
}

#[tokio::test(flavor = "multi_thread")]
async fn tokens_hold_for_the_routes_too() {
    let tokens = [("a-token", Role::Admin)];
    let coordinator = Coordinator::builder().store("memory:").tokens(tokens).start().await.expect("it starts");
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let app = Router::new().merge(coordinator.router());
    let server = tokio::spawn(async move { axum::serve(listener, app).await });
    let refused = Client::connect(&url).await.expect("an address").enqueue(Double(1)).await.expect_err("refused");
    assert!(matches!(&refused, convoke::Error::Coordinator(error) if error.is_denied()), "{refused}");
    let client = Client::connect_with(&url, "a-token").await.expect("an address");
    client.enqueue(Double(1)).await.expect("allowed");
    server.abort();
}
