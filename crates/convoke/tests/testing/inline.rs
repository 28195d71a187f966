//! Handlers that run inside `enqueue`.

use convoke::{Client, Status};

use super::*;

#[derive(Serialize, Deserialize)]
struct Countdown(u32);

impl Job for Countdown {
    const TYPE: &'static str = "countdown";
    type Output = u32;
}

#[tokio::test]
async fn a_job_has_run_when_its_enqueue_returns_and_so_has_what_it_enqueued() {
    let (server, runs) = (server().await, Runs::default());
    let (seen, slot) = (runs.clone(), Arc::new(Mutex::new(None::<Client>)));
    let client = slot.clone();
    let inline = server.run_inline(|worker| {
        worker.queues(["default"]).handle(move |_: Context, Countdown(left): Countdown| {
            let (seen, client) = (seen.clone(), client.lock().clone());
            async move {
                seen.add(left.to_string(), Timestamp::UNIX_EPOCH);
                if left > 0 {
                    client.ok_or_else(|| convoke::Error::failed("no client"))?.enqueue(Countdown(left - 1)).await?;
                }
                Ok::<_, convoke::Error>(left)
            }
        })
    });
    let _inline = inline.await.expect("it registers");
    *slot.lock() = Some(server.client());
    let job = server.client().enqueue(Countdown(3)).await.expect("made");
    let ran: Vec<String> = runs.all().into_iter().map(|(left, _)| left).collect();
    assert_eq!(ran, ["3", "2", "1", "0"]);
    assert_eq!((job.status().await.expect("it exists"), job.wait().await.expect("done")), (Status::Completed, 3));
    assert_eq!(server.now(), start(), "no time has passed");
    server.client().enqueue(Countdown(0)).delay(HOUR).await.expect("made");
    assert_eq!(runs.count(), 4, "its time has not come");
    server.advance(HOUR).await.expect("moved");
    assert_eq!(runs.count(), 5);
}
