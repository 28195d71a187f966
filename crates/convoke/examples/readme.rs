use convoke::{Client, Context, Job, Worker};
use serde::{Deserialize, Serialize};

#[derive(Serialize, Deserialize)]
struct SendEmail {
    to: String,
}

impl Job for SendEmail {
    const TYPE: &'static str = "email.send";
    type Output = ();
}

#[tokio::main]
async fn main() -> convoke::Result<()> {
    let server = std::env::var("CONVOKE_SERVER").unwrap_or("http://127.0.0.1:3000".into());
    let worker = Worker::connect(&server).await?.queues(["mail"]).concurrency(10);
    let worker = worker.handle(async |cx: Context, job: SendEmail| cx.log(format!("to {}", job.to)).await);
    tokio::spawn(worker.run()); // until SIGTERM

    let client = Client::connect(&server).await?;
    let sent = client.enqueue(SendEmail { to: "ada@example.org".into() }).queue("mail").await?;
    sent.wait().await?;
    println!("{} is done", sent.id());
    Ok(())
}
