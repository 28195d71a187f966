//! Workers that die, freeze, leave, forget and repeat themselves.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use convoke_testkit::invariants::{Observations, Seen, jobs_hold};
use convoke_testkit::process::{Fault, GatewayWorker, Handling, Http, HttpProxy, Node, Plan, Signal, eventually};
use serde_json::{Value, json};

use super::server;

/// A server that declares workers dead within a second.
async fn impatient() -> Node {
    server().set("worker.stale_after", "1s").set("worker.heartbeat_interval", "200ms").start().await
}

async fn register(http: &Http, worker: &str, queue: &str) -> Value {
    let body = json!({ "workerId": worker, "name": worker, "queues": [queue], "concurrency": 5 });
    http.post("/v1/worker/register", body).await.expect("a response").expect(200)
}

/// One job of the queue, taken by hand.
async fn take(http: &Http, worker: &str) -> Value {
    let body = json!({ "workerId": worker, "max": 1, "wait": "20s" });
    let polled = http.post("/v1/worker/poll", body).await.expect("a response").expect(200);
    assert_eq!(polled["jobs"].as_array().map(Vec::len), Some(1), "{polled}");
    polled["jobs"][0].clone()
}

fn event(run: &Value, kind: &str) -> Value {
    json!({ "jobId": run["jobId"], "executionId": run["executionId"], "kind": kind })
}

/// Reports, registering again where the server has forgotten the worker.
async fn report(http: &Http, worker: &str, queue: &str, events: &[Value]) -> Value {
    let body = json!({ "workerId": worker, "events": events });
    let response = http.post("/v1/worker/report", body.clone()).await.expect("a response");
    if response.status != 404 {
        return response.expect(200);
    }
    assert_eq!(response.json()["error"]["code"], "unknown_worker");
    register(http, worker, queue).await;
    http.post("/v1/worker/report", body).await.expect("a response").expect(200)
}

/// A command that runs until the file `go` is there.
const UNTIL_GO: &str = "until [ -e go ]; do sleep 0.02; done";

async fn running_by(node: &Node, id: &str) -> String {
    let job = node.job_when(id, &["running"]).await;
    job["workerId"].as_str().expect("a running job has a worker").to_owned()
}

#[tokio::test]
async fn runs_of_a_killed_worker_are_taken_over() {
    let node = impatient().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let mut first = node.exec_worker("q", UNTIL_GO);
    let before = running_by(&node, &id).await;
    first.kill().await;
    let _second = node.exec_worker("q", "true");
    let job = node.job_when(&id, &["completed"]).await;
    assert_ne!(job["workerId"], before.as_str());
    assert_eq!(job["attempt"], 2, "a lost run counts as an attempt");
    let history = node.history(&id).await;
    let statuses: Vec<_> = history.iter().map(|run| run["status"].as_str().unwrap_or_default()).collect();
    assert_eq!(statuses, ["lost", "completed"]);
}

#[tokio::test]
async fn a_job_that_kills_its_workers_is_a_dead_letter_exactly_once() {
    let node = impatient().await;
    let id = node.enqueued(json!({ "type": "poison", "queue": "q", "maxRetries": 2 })).await;
    for attempt in 1..=2 {
        let mut worker = node.exec_worker("q", UNTIL_GO);
        eventually("the next attempt", || async {
            let job = node.job(&id).await;
            (job["status"] == "running" && job["attempt"] == attempt).then_some(())
        })
        .await;
        worker.kill().await;
    }
    let _last = node.exec_worker("q", "echo broken >&2; exit 3");
    let job = node.job_when(&id, &["failed"]).await;
    assert_eq!((&job["attempt"], &job["retryCount"]), (&json!(3), &json!(2)), "attempts add up");
    let letters = node.all("/v1/dead-letters", "deadLetters").await;
    assert_eq!(letters.len(), 1, "{letters:?}");
    assert_eq!((&letters[0]["jobId"], &letters[0]["attempts"]), (&json!(id), &json!(3)));
    assert!(letters[0]["error"].as_str().is_some_and(|error| error.contains('3')), "{}", letters[0]);
    jobs_hold(&Observations::default(), &Seen::of(&node).await);
}

#[tokio::test]
async fn the_late_completion_of_a_paused_worker_process_is_refused() {
    let node = impatient().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    // One at a time: with its hands full it does not wait in a poll, which would count as a sign of life.
    let args = ["worker", "run", "--queue", "q", "--concurrency", "1", "--exec", UNTIL_GO];
    let paused = node.start_process("convoke worker run", args);
    let old = node.job_when(&id, &["running"]).await;
    paused.signal(Signal::STOP);
    let second = node.exec_worker("q", "until [ -e go-on ]; do sleep 0.02; done");
    let new = eventually("the newer run", || async {
        let job = node.job(&id).await;
        (job["status"] == "running" && job["executionId"] != old["executionId"]).then_some(job)
    })
    .await;
    assert_eq!(new["attempt"], 2);
    let fenced = node.metric("convoke_fenced_total", &[]).await;
    // Its command ends, it wakes up, and has a completion to report.
    std::fs::write(node.settings().directory().join("go"), "").expect("a file");
    paused.signal(Signal::CONT);
    eventually("the refusal of the late completion", || async {
        (node.metric("convoke_fenced_total", &[]).await > fenced).then_some(())
    })
    .await;
    assert_eq!(node.job(&id).await, new, "the newer run continues unchanged");
    std::fs::write(node.settings().directory().join("go-on"), "").expect("a file");
    let job = node.job_when(&id, &["completed"]).await;
    assert_eq!((&job["executionId"], &job["attempt"]), (&new["executionId"], &new["attempt"]));
    assert_ne!(job["workerId"], old["workerId"]);
    let history = node.history(&id).await;
    let statuses: Vec<_> = history.iter().map(|run| run["status"].as_str().unwrap_or_default()).collect();
    assert_eq!(statuses, ["lost", "completed"]);
    drop(second);
}

#[tokio::test]
async fn a_late_report_is_answered_with_stale_execution() {
    let node = impatient().await;
    let http = node.http();
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    register(http, "slow", "q").await;
    let old = take(http, "slow").await;
    // It sends nothing more, and the server considers it dead after a second; the other waits for its run.
    register(http, "quick", "q").await;
    let new = take(http, "quick").await;
    assert_ne!(new["executionId"], old["executionId"]);
    for kind in ["started", "progress", "log", "completed", "failed", "cancelled"] {
        let mut late = event(&old, kind);
        match kind {
            "progress" => late["percent"] = 50.into(),
            "log" => late["message"] = "late".into(),
            "failed" => late["error"] = "late".into(),
            _ => {}
        }
        let response = report(http, "slow", "q", &[late]).await;
        assert_eq!(response["accepted"], 0, "{kind}: {response}");
        let refused = json!([{ "executionId": old["executionId"], "code": "stale_execution" }]);
        assert_eq!(response["rejected"], refused, "{kind}");
    }
    let mut done = event(&new, "completed");
    done["result"] = json!({ "by": "quick" });
    assert_eq!(report(http, "quick", "q", &[done]).await["accepted"], 1);
    let job = node.job(&id).await;
    assert_eq!((&job["status"], &job["result"]["by"]), (&json!("completed"), &json!("quick")));
    let logs = http.get(&format!("/v1/jobs/{id}/logs")).await.expect("a response").expect(200);
    assert_eq!(logs["logs"], json!([]), "nothing of the late run was kept");
}

#[tokio::test]
async fn a_queue_whose_last_worker_died_keeps_its_jobs_pending() {
    let node = impatient().await;
    let http = node.http();
    let mut events = http.sse("/v1/events").await.expect("a stream");
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    register(http, "last", "q").await;
    take(http, "last").await;
    events.wait_for("worker:dead", |event| event.event.as_deref() == Some("worker:dead")).await;
    // A second one wakes the dispatcher once more.
    let other = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    node.http().get("/metrics").await.expect("a response");
    for (id, attempt) in [(id, 1), (other, 0)] {
        let job = node.job(&id).await;
        assert_eq!((&job["status"], &job["attempt"]), (&json!("pending"), &json!(attempt)), "nobody could run it");
    }
}

#[tokio::test]
async fn a_repeated_end_changes_nothing_and_another_end_is_refused() {
    let node = server().start().await;
    let http = node.http();
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    register(http, "w", "q").await;
    let run = take(http, "w").await;
    let mut done = event(&run, "completed");
    done["result"] = json!(1);
    assert_eq!(report(http, "w", "q", &[done.clone()]).await, json!({ "accepted": 1, "rejected": [] }));
    let job = node.job(&id).await;
    assert_eq!(report(http, "w", "q", &[done]).await, json!({ "accepted": 1, "rejected": [] }));
    let mut failed = event(&run, "failed");
    failed["error"] = "after all".into();
    let response = report(http, "w", "q", &[failed]).await;
    assert_eq!(response["rejected"][0]["code"], "stale_execution", "{response}");
    assert_eq!(node.job(&id).await, job);
}

#[tokio::test]
async fn workers_that_leave_while_they_poll_are_gone() {
    let node = server().start().await;
    let http = node.http();
    for round in 0..20 {
        let rounds = (0..10).map(|n| async move {
            let worker = format!("w-{round}-{n}");
            register(http, &worker, "q").await;
            let parked = json!({ "workerId": worker, "max": 1, "wait": "20s" });
            let (polled, left) = tokio::join!(
                http.post("/v1/worker/poll", parked),
                http.post("/v1/worker/leave", json!({ "workerId": worker }))
            );
            left.expect("a response").expect(200);
            polled.expect("a response").expect(404);
            let again = json!({ "workerId": worker, "max": 1, "wait": "0s" });
            http.post("/v1/worker/poll", again).await.expect("a response").expect(404);
        });
        futures_util::future::join_all(rounds).await;
    }
    let listed = http.get("/v1/workers").await.expect("a response").json();
    assert_eq!(listed["workers"], json!([]));
}

#[tokio::test]
async fn one_stale_event_hinders_no_other() {
    let node = server().start().await;
    let http = node.http();
    let (first, second) = (
        node.enqueued(json!({ "type": "t", "queue": "q" })).await,
        node.enqueued(json!({ "type": "t", "queue": "q" })).await,
    );
    register(http, "w", "q").await;
    let (one, two) = (take(http, "w").await, take(http, "w").await);
    node.http().post(&format!("/v1/jobs/{first}/cancel"), json!({})).await.expect("a response").expect(200);
    let response = report(http, "w", "q", &[event(&one, "completed"), event(&two, "completed")]).await;
    assert_eq!(response["accepted"], 1, "{response}");
    assert_eq!(response["rejected"][0]["executionId"], one["executionId"]);
    assert_eq!(node.job(&first).await["status"], "cancelled");
    assert_eq!(node.job(&second).await["status"], "completed");
}

#[tokio::test]
async fn what_a_leaving_worker_has_not_finished_goes_back_at_once_and_does_not_count() {
    let node = server().set("worker.stale_after", "10m").start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let observations = Observations::default();
    let worker = GatewayWorker::start(node.http(), &observations, Plan::new("w", "q", |_| Handling::Hold)).await;
    node.job_when(&id, &["running"]).await;
    let left = worker.leave().await;
    assert!(matches!(left.status, 200 | 204), "{}", left.text());
    let job = node.job_when(&id, &["pending"]).await;
    assert_eq!(job["attempt"], 0);
    let next = Plan::new("next", "q", |_| Handling::Complete(Value::Null));
    let _next = GatewayWorker::start(node.http(), &observations, next).await;
    assert_eq!(node.job_when(&id, &["completed"]).await["attempt"], 1);
    jobs_hold(&observations, &Seen::of(&node).await);
}

#[tokio::test]
async fn a_run_that_its_worker_no_longer_knows_of_is_lost() {
    let node = server().set("worker.stale_after", "10m").start().await;
    let http = node.http();
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    register(http, "forgetful", "q").await;
    let run = take(http, "forgetful").await;
    eventually("the run to be declared lost", || async {
        let body = json!({ "workerId": "forgetful", "running": [] });
        http.post("/v1/worker/heartbeat", body).await.expect("a response").expect(200);
        (node.job(&id).await["executionId"] != run["executionId"]).then_some(())
    })
    .await;
    let again = take(http, "forgetful").await;
    assert_eq!((&again["jobId"], &again["attempt"]), (&json!(id), &json!(2)), "a lost run counts");
}

/// Both are started anew, the worker under the id it had: it does not know of its former run, and nobody else could.
#[tokio::test]
async fn a_run_from_before_a_restart_that_its_worker_no_longer_knows_of_is_lost() {
    let mut node = server().set("worker.stale_after", "10m").start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    register(node.http(), "w", "q").await;
    let run = take(node.http(), "w").await;
    assert_eq!(report(node.http(), "w", "q", &[event(&run, "started")]).await["accepted"], 1);
    node.restart().await;
    let http = node.http();
    register(http, "w", "q").await;
    let job = eventually("the run to be declared lost", || async {
        let body = json!({ "workerId": "w", "running": [] });
        http.post("/v1/worker/heartbeat", body).await.expect("a response").expect(200);
        let job = node.job(&id).await;
        (job["executionId"] != run["executionId"]).then_some(job)
    })
    .await;
    let again = take(http, "w").await;
    assert_eq!((&again["jobId"], &again["attempt"]), (&job["id"], &json!(2)), "a lost run counts");
}

#[tokio::test]
async fn an_unknown_worker_is_told_to_register_again() {
    let mut node = server().start().await;
    for (path, body) in [
        ("/v1/worker/poll", json!({ "workerId": "nobody", "max": 1, "wait": "0s" })),
        ("/v1/worker/heartbeat", json!({ "workerId": "nobody", "running": [] })),
    ] {
        let response = node.http().post(path, body).await.expect("a response");
        assert_eq!(response.expect(404)["error"]["code"], "unknown_worker", "{path}");
    }
    register(node.http(), "w", "q").await;
    node.restart().await;
    // Whether a registration survives a restart is the server's business; that the worker can go on is not.
    register(node.http(), "w", "q").await;
    let body = json!({ "workerId": "w", "max": 1, "wait": "0s" });
    let polled = node.http().post("/v1/worker/poll", body).await.expect("a response").expect(200);
    assert_eq!((&polled["jobs"], &polled["drain"]), (&json!([]), &json!(false)));
}

#[tokio::test]
async fn a_cancelled_run_is_told_to_its_worker() {
    let node = server().start().await;
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let observations = Observations::default();
    let worker = GatewayWorker::start(node.http(), &observations, Plan::new("w", "q", |_| Handling::Hold)).await;
    node.job_when(&id, &["running"]).await;
    let body = json!({ "reason": "not needed" });
    let job = node.http().post(&format!("/v1/jobs/{id}/cancel"), body).await.expect("a response").expect(200);
    assert_eq!(job["status"], "cancelled");
    eventually("the worker to stop its run", || async { worker.running().is_empty().then_some(()) }).await;
    assert_eq!(node.job(&id).await["status"], "cancelled");
}

#[tokio::test]
async fn a_run_that_takes_too_long_is_a_failed_attempt_and_in_the_end_timed_out() {
    let node = server().start().await;
    let spec = json!({ "type": "t", "queue": "q", "timeout": "150ms", "maxRetries": 1 });
    let id = node.enqueued(spec).await;
    let observations = Observations::default();
    let _worker = GatewayWorker::start(node.http(), &observations, Plan::new("w", "q", |_| Handling::Hold)).await;
    let job = node.job_when(&id, &["timedOut"]).await;
    assert_eq!(job["attempt"], 2);
    let history = node.history(&id).await;
    assert!(history.iter().all(|run| run["status"] == "timedOut"), "{history:?}");
    assert_eq!(node.all("/v1/dead-letters", "deadLetters").await.len(), 1);
}

#[tokio::test]
async fn a_worker_with_its_hands_full_gets_no_more() {
    let node = server().start().await;
    for _ in 0..8 {
        node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    }
    let observations = Observations::default();
    let plan = Plan::new("w", "q", |_| Handling::CompleteAfter(Duration::from_millis(60), Value::Null)).concurrency(2);
    let worker = GatewayWorker::start(node.http(), &observations, plan).await;
    let mut most = 0;
    eventually("all to be completed", || {
        most = most.max(worker.running().len());
        let done = observations.entries().reports.iter().filter(|it| it.kind == "completed").count();
        async move { (done == 8).then_some(()) }
    })
    .await;
    assert!(most <= 2, "{most} at once");
    let workers = node.http().get("/v1/workers").await.expect("a response").expect(200);
    assert_eq!(workers["workers"][0]["workerId"], "w", "{workers}");
    assert_eq!(workers["workers"][0]["concurrency"], 2);
}

#[tokio::test]
async fn log_lines_are_recorded_once_although_reports_are_sent_twice() {
    let node = server().start().await;
    let proxy = HttpProxy::start(node.http().address()).await;
    let reports = AtomicUsize::new(0);
    proxy.rule(move |request| {
        let is_first = request.path == "/v1/worker/report" && reports.fetch_add(1, Ordering::Relaxed).is_multiple_of(2);
        if is_first { Fault::DoneWithStatus(503) } else { Fault::None }
    });
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    let address = format!("http://{}", proxy.address());
    let command = "for n in 1 2 3 4 5 6; do echo $n; sleep 0.05; done";
    let args = ["worker", "run", "--server", &address, "--queue", "q", "--exec", command];
    let _worker = node.start_process("convoke worker run", args);
    node.job_when(&id, &["completed"]).await;
    let logs = node.http().read(&format!("/v1/jobs/{id}/logs")).await;
    let lines: Vec<_> = logs["logs"].as_array().expect("logs").iter().map(|line| line["message"].as_str()).collect();
    assert_eq!(lines, ["1", "2", "3", "4", "5", "6"].map(Some));
    let sent = proxy.take_requests().iter().filter(|request| request.path == "/v1/worker/report").count();
    assert!(sent >= 2, "the first report was sent again");
}
