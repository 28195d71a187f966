//! An application that is its own coordinator: a web server with a page of its own, and Convoke under `/convoke`.
//!
//! `cargo run -p convoke --features coordinator --example coordinator`. A first argument names another store, such as
//! `postgres://…`.

use std::net::SocketAddr;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::Method;
use axum::routing::get;
use convoke::{Client, Context, Coordinator, Error, Job};
use serde::{Deserialize, Serialize};
use tokio::net::TcpListener;
use tokio::sync::oneshot;

#[derive(Serialize, Deserialize)]
struct Greet {
    name: String,
}

impl Job for Greet {
    const TYPE: &'static str = "greet";
    type Output = String;
}

async fn greet(_: Context, job: Greet) -> convoke::Result<String> {
    Ok(format!("hello, {}", job.name))
}

/// The application's own route: enqueues a job and waits for its result.
async fn hello(State(client): State<Client>, Path(name): Path<String>) -> String {
    let greeting = async { client.enqueue(Greet { name }).await?.wait().await };
    greeting.await.unwrap_or_else(|error| format!("no greeting: {error}"))
}

#[tokio::main]
async fn main() -> convoke::Result<()> {
    let directory = tempfile::tempdir()?;
    let file = format!("sqlite:{}", directory.path().join("app.db").display());
    let store = std::env::args().nth(1).unwrap_or(file);
    let coordinator = Coordinator::builder().store(store).bus("memory:").start().await?;
    coordinator.ready().await?;

    // A worker in this process. Others connect to the path below.
    let (stop, stopped) = oneshot::channel::<()>();
    let worker = coordinator.worker().queues(["default"]).handle(greet);
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));

    let app = Router::new()
        .route("/hello/{name}", get(hello))
        .with_state(coordinator.client())
        .nest("/convoke", coordinator.router());
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let address = listener.local_addr()?;
    println!("http://{address}/hello/NAME is the application, http://{address}/convoke the coordinator");

    let (shut_down, shutting_down) = oneshot::channel::<()>();
    // With the addresses of clients: without tokens the coordinator serves requests of its own machine only.
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    let server = axum::serve(listener, service).with_graceful_shutdown(async move {
        // An application waits for a signal here.
        let _ = shutting_down.await;
        // First the worker, then the node. The server stays up until both have left.
        let _ = stop.send(());
        if let Err(error) = worker.await.map_err(Error::other).flatten() {
            eprintln!("the worker failed: {error}");
        }
        if let Err(error) = coordinator.drain().await {
            eprintln!("the node left: {error}");
        }
    });
    let server = tokio::spawn(async move { server.await });

    let client = Client::connect(&format!("http://{address}/convoke")).await?;
    let greeting = client.enqueue(Greet { name: "ada".into() }).await?.wait().await?;
    println!("a client over HTTP: {greeting}");

    let application = convoke::connect::http(&format!("http://{address}"), None)?;
    let (status, page) = application.send(Method::GET, "/hello/bob", None).await?;
    println!("the application's own route: {status}: {}", String::from_utf8_lossy(&page));

    let _ = shut_down.send(());
    server.await.map_err(Error::other)??;
    println!("drained");
    Ok(())
}
