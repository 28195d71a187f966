//! A client and a worker in one: sends mail that nobody receives.
//!
//! Start a coordinator (`cargo run --release`), then `cargo run -p convoke --example jobs`. `CONVOKE_SERVER` names another
//! one.

use std::time::Duration;

use convoke::{Client, Context, Error, Job, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

#[derive(Debug, Serialize, Deserialize)]
struct Receipt {
    recipient: String,
    attempt: u32,
}

impl Job for SendEmail {
    const TYPE: &'static str = "email.send";
    type Output = Receipt;
}

async fn send(cx: Context, job: SendEmail) -> convoke::Result<Receipt> {
    if !job.to.contains('@') {
        return Err(Error::permanent(format!("{:?} is no address", job.to)));
    }
    cx.log(format!("to {}", job.to)).await?;
    if cx.attempt() == 1 && job.to.starts_with("busy") {
        return Err(Error::failed("the mailbox is busy"));
    }
    cx.progress(100, "sent").await?;
    Ok(Receipt { recipient: job.to, attempt: cx.attempt() })
}

#[tokio::main]
async fn main() -> convoke::Result<()> {
    let server = std::env::var("CONVOKE_SERVER").unwrap_or_else(|_| "http://127.0.0.1:3000".into());
    // A queue of its own, so that two runs of this example do not take each other's jobs.
    let queue = format!("example-{}", std::process::id());
    let client = Client::connect(&server).await?;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let worker = Worker::connect(&server).await?.queues([&queue]).concurrency(10).handle(send);
    let worker = tokio::spawn(worker.run_until(async {
        let _ = stopped.await;
    }));

    let sent = client.enqueue(SendEmail { to: "ada@example.com".into() }).queue(&queue).await?;
    println!("job {} results in {:?}", sent.id(), sent.wait().await?);

    let policy = convoke::RetryPolicy { initial_delay: Duration::from_millis(100), ..Default::default() };
    let busy = client.enqueue(SendEmail { to: "busy@example.com".into() }).queue(&queue).retry_policy(policy).await?;
    println!("job {} results in {:?}", busy.id(), busy.wait().await?);

    let wrong = client.enqueue(SendEmail { to: "nobody".into() }).queue(&queue).await?;
    match wrong.wait().await {
        Err(error @ Error::NotCompleted { .. }) => println!("{error}"),
        other => panic!("a mail without address was sent: {other:?}"),
    }

    let many = (0..100).map(|n| SendEmail { to: format!("{n}@example.com") });
    let many = client.enqueue_all(many).queue(&queue).await?;
    for handle in &many {
        handle.wait().await?;
    }
    println!("{} more were sent", many.len());

    let _ = stop.send(());
    worker.await.map_err(Error::other)?
}
