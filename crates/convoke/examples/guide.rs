//! The blocks of Rust in the guide, each in a function of its own: `sdks/documents` compares them, and the build compiles
//! them. They need servers that run, so nothing is called; `jobs`, `shards`, `mesh`, `elector` and `coordinator` are whole
//! programs.

#![allow(dead_code, unused_variables, reason = "fragments")]

use std::net::SocketAddr;
use std::time::Duration;

use axum::Router;
use axum::routing::get;
use convoke::{Context, Elector, Epoch, Error, Job, Result, ShardWorker, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Job for SendEmail {
    const TYPE: &'static str = "email.send";
    type Output = ();
}

async fn send(_: Context, _: SendEmail) -> Result<()> {
    Ok(())
}

async fn hello() -> &'static str {
    "hello"
}

async fn reindex(_: Epoch) {}

async fn shutdown_signal() {}

#[rustfmt::skip]
async fn workers() -> Result<()> {
    Worker::connect("redis://127.0.0.1:6379").await?.queues(["email"]).handle(send).run().await?;
    Ok(())
}

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

#[rustfmt::skip]
async fn testing() -> Result<()> {
    let server = convoke::testing::Server::start().await?;                    // stops when it is dropped
    let _worker = server.work(|worker| worker.queues(["mail"]).handle(send)).await?;
    let job = server.client().enqueue(SendEmail { to: "a@b.c".into() }).queue("mail").delay(DAY).await?;
    server.advance(DAY).await?;
    job.wait().await?;
    Ok(())
}

#[derive(Serialize, Deserialize)]
struct ConfirmOrder {
    order: u64,
}

impl Job for ConfirmOrder {
    const TYPE: &'static str = "order.confirm";
    type Output = u64;
}

#[derive(Clone)]
struct Db;

impl Db {
    async fn confirm(&self, order: u64, _: convoke::ExecutionId) -> std::io::Result<u64> {
        Ok(order)
    }
}

#[rustfmt::skip]
async fn handlers(db: Db) -> Result<()> {
    use convoke::{Context, ExecutionId, State, Worker};

    async fn confirm(State(db): State<Db>, cx: Context, run: ExecutionId, job: ConfirmOrder) -> convoke::Result<u64> {
        cx.log(format!("confirms order {}", job.order)).await?;
        Ok(db.confirm(job.order, run).await?)
    }

    Worker::connect("http://127.0.0.1:3000").await?.queues(["orders"]).state(db).handle(confirm).run().await?;
    Ok(())
}

#[rustfmt::skip]
async fn transaction(pool: sqlx::PgPool) -> std::result::Result<(), Box<dyn std::error::Error>> {
    use convoke::transaction::{Statement, spec};

    let mut transaction = pool.begin().await?;
    sqlx::query("insert into orders (id) values ($1)").bind(17).execute(&mut *transaction).await?;
    let enqueue = Statement::new(&[spec(&ConfirmOrder { order: 17 })?])?;
    let rows: Vec<String> = sqlx::query_scalar(enqueue.sql()).bind(enqueue.parameter()).fetch_all(&mut *transaction).await?;
    transaction.commit().await?;
    let jobs = enqueue.enqueued(rows)?;
    Ok(())
}

#[rustfmt::skip]
async fn cluster(client: &mut tokio_postgres::Client, order: &SendEmail) -> std::result::Result<(), Box<dyn std::error::Error>> {
    use convoke::transaction::{JobSpec, JobType, Json, enqueue_in};

    let transaction = client.transaction().await?;
    transaction.execute("insert into orders (id) values ($1)", &[&17]).await?;
    let args = Json::of(&order)?;
    let job = JobSpec::new(JobType::new("order.confirm")?).with(|job| job.args = Some(args));
    enqueue_in(&transaction, &[job]).await?;
    transaction.commit().await?;
    Ok(())
}

#[rustfmt::skip]
async fn shards() -> Result<()> {
    let shards = ShardWorker::connect("tcp://127.0.0.1:5555", "my-service", "worker-1", 100).await?;
    let mut changes = shards.changes();
    while let Some(change) = changes.next().await {
        println!("{:?} came, {:?} went", change.added, change.removed);
    }
    Ok(())
}

#[rustfmt::skip]
async fn mesh() -> Result<()> {
    use convoke::{InstanceId, Mesh, Request};

    #[derive(Serialize, Deserialize)]
    struct GetStatus { verbose: bool }
    #[derive(Serialize, Deserialize)]
    struct Status { uptime: u64 }
    impl Request for GetStatus { const TYPE: &'static str = "getStatus"; type Response = Status; }

    let mesh = Mesh::connect("redis://127.0.0.1", "my-app").await?
        .on(|_: GetStatus| async move { Ok(Status { uptime: 1 }) })
        .start().await?;

    let status = mesh.invoke(InstanceId(2), GetStatus { verbose: true }).await?;
    mesh.stop().await;
    Ok(())
}

#[rustfmt::skip]
async fn election() -> Result<()> {
    let elector = Elector::connect("redis://…").await?.namespace("production").ttl(Duration::from_secs(15)).start().await?;
    while let Some(term) = elector.lead().await {          // waits until elected
        term.run(|term| reindex(term.epoch())).await;      // dropped the moment the term ends
    }
    Ok(())
}

#[rustfmt::skip]
async fn embedding() -> Result<()> {
    let coordinator = convoke::Coordinator::builder()
        .store("sqlite:app.db")
        .bus("memory:")
        .http("127.0.0.1:3000")
        .start()
        .await?;
    coordinator.ready().await?;

    let client = coordinator.client();                                          // no HTTP in between
    let worker = coordinator.worker().queues(["mail"]).handle(send);
    // …
    coordinator.drain().await?;
    Ok(())
}

#[rustfmt::skip]
async fn router(coordinator: convoke::Coordinator, listener: tokio::net::TcpListener) -> Result<()> {
    let app = Router::new()
        .route("/hello/{name}", get(hello))
        .nest("/convoke", coordinator.router());
    let service = app.into_make_service_with_connect_info::<SocketAddr>();
    axum::serve(listener, service)
        .with_graceful_shutdown(async move {
            shutdown_signal().await;
            let _ = coordinator.drain().await;
        })
        .await?;
    Ok(())
}

fn main() -> Result<()> {
    Err(Error::permanent("these are the blocks of the guide: run another example"))
}
