//! A worker that nobody here wrote, and that does no more than Redis asks of a consumer, is served as any other.

use convoke_testkit::process::{Fleet, eventually, wait_for_value};
use serde_json::json;

const JOBS: usize = 50;

/// It acknowledges and does not delete: what it is done with still lies on the channel, and is no work that waits.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_acknowledges_is_given_every_job() {
    // Nobody walks over the bus and trims meanwhile.
    let builder = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).set("channels.scan_interval", "1h");
    let fleet = builder.start().await;
    let channel = acknowledge_all(&fleet).await;
    assert!(fleet.ask_bus::<usize>(&["XLEN", &channel]).await > 0, "what it acknowledged still lies there");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_somebody_acknowledges_and_leaves_where_it_is_goes_in_time() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let channel = acknowledge_all(&fleet).await;
    wait_for_value("entries on the channel", 0, || async { fleet.ask_bus::<usize>(&["XLEN", &channel]).await }).await;
}

/// Somebody has put something else where a queue's channel should be.
#[tokio::test(flavor = "multi_thread")]
async fn a_channel_that_is_none_holds_up_no_other_queue() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let channel = format!("{}.job.dispatch.wrong", fleet.prefix());
    fleet.ask_bus::<()>(&["SET", &channel, "no stream"]).await;
    let idle = fleet.bus_worker("idle", "wrong", 1).await;
    let worker = fleet.bus_worker("busy", "right", 2).await;
    worker.release_all();
    let job = |queue: &str| json!({ "type": "plain", "queue": queue });
    let jobs = [vec![job("wrong")], vec![job("right"); JOBS]].concat();
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    completed(&fleet, "right", JOBS).await;
    fleet.ask_bus::<()>(&["DEL", &channel]).await;
    drop(idle);
    let worker = fleet.bus_worker("next", "wrong", 1).await;
    worker.release_all();
    completed(&fleet, "wrong", 1).await;
}

/// A bell may be lost, and some workers send none. A status that was published in time counts, even if it is read after the timeout.
#[tokio::test(flavor = "multi_thread")]
async fn an_end_that_nobody_rang_for_comes_before_the_timeout_and_any_other_word_does_not() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
    for (queue, kind, expected) in [("ends", "completed", "completed"), ("goes-on", "progress", "timedOut")] {
        let worker = fleet.bus_worker(queue, queue, 1).await;
        let job = json!({ "type": "plain", "queue": queue, "timeout": "3s", "maxRetries": 0 });
        let job = fleet.any().post("/v1/jobs", job).await.expect("a response").expect(201);
        let path = format!("/v1/jobs/{}", job["id"].as_str().expect("an id"));
        let status = || async { fleet.any().read(&path).await["status"].clone() };
        wait_for_value("the job", json!("running"), status).await;
        worker.publish_status_quietly(kind).await;
        eventually("an end", || async { (status().await != json!("running")).then_some(()) }).await;
        assert_eq!(status().await, json!(expected), "after {kind}");
    }
}

/// A message that cannot be read is set aside and counted by the kind of its channel, whatever the prefix is.
#[tokio::test(flavor = "multi_thread")]
async fn nonsense_is_counted_by_the_kind_of_its_channel() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    for topic in ["worker.heartbeat", "job.bell"] {
        fleet.ask_bus::<()>(&["PUBLISH", &format!("{}.{topic}", fleet.prefix()), "{"]).await;
    }
    fleet.ask_bus::<()>(&["XADD", &format!("{}.job.enqueue", fleet.prefix()), "*", "data", "{"]).await;
    for kind in ["worker.heartbeat", "job.bell", "job.enqueue"] {
        let label = format!("channel=\"{kind}\"");
        let counted = async || fleet.metric("convoke_bus_poison_total", &[&label]).await;
        wait_for_value("messages that were set aside", 1.0, counted).await;
    }
    let shelf = format!("{}.poison", fleet.prefix());
    wait_for_value("what was set aside", 3, || async { fleet.ask_bus::<usize>(&["XLEN", &shelf]).await }).await;
}

/// It sends no heartbeats, announces nothing and writes its keys in PascalCase.
#[tokio::test(flavor = "multi_thread")]
async fn who_only_reads_its_queue_is_given_every_job_and_is_listed() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2).start().await;
    let reader = fleet.bus_reader("reader-1", "read").await;
    let jobs = vec![json!({ "type": "plain", "queue": "read" }); JOBS];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let shown = eventually("that it is listed", || async {
        let workers = fleet.any().read("/v1/workers").await;
        workers["workers"].as_array()?.iter().find(|worker| worker["workerId"] == "reader-1").cloned()
    })
    .await;
    assert_eq!((&shown["name"], &shown["concurrency"]), (&json!("reader-1 (reader)"), &json!(10)), "{shown}");
    assert_eq!((&shown["queues"], &shown["via"]), (&json!(["read"]), &json!(null)), "{shown}");
    completed(&fleet, "read", JOBS).await;
    assert_eq!(reader.completed(), JOBS, "each once");
    let of_it = fleet.any().read("/v1/jobs?queue=read&limit=100").await;
    for job in of_it["jobs"].as_array().expect("jobs") {
        assert_eq!((&job["workerId"], &job["attempt"]), (&json!("reader-1"), &json!(1)), "{job}");
    }
}

/// The seed of such workers calls `job.cancel` a queue: one that knows no topics reads it as such.
#[tokio::test(flavor = "multi_thread")]
async fn a_cancellation_is_also_on_a_queue_of_the_topics_name() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let worker = fleet.bus_worker("holder", "held", 1).await;
    let job = json!({ "type": "plain", "queue": "held" });
    let job = fleet.any().post("/v1/jobs", job).await.expect("a response").expect(201);
    let id = job["id"].as_str().expect("an id").to_owned();
    let execution = eventually("a run", || async { worker.held().keys().next().cloned() }).await;
    let cancel = format!("/v1/jobs/{id}/cancel");
    fleet.any().post(&cancel, json!({ "reason": "enough" })).await.expect("a response").expect(200);
    let channel = format!("{}.job.cancel", fleet.prefix());
    let kept: Vec<(String, Vec<String>)> = eventually("the cancellation", || async {
        let kept: Vec<(String, Vec<String>)> = fleet.ask_bus(&["XRANGE", &channel, "-", "+"]).await;
        (!kept.is_empty()).then_some(kept)
    })
    .await;
    assert_eq!((kept.len(), kept[0].1[0].as_str()), (1, "data"));
    let message: serde_json::Value = serde_json::from_str(&kept[0].1[1]).expect("JSON");
    assert_eq!(message, json!({ "v": 1, "jobId": id, "executionId": execution, "reason": "enough" }));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_producer_of_messages_that_cannot_be_read_is_logged_once_with_what_is_missing() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(1).start().await;
    let topic = format!("{}.worker.heartbeat", fleet.prefix());
    for n in 0..20 {
        let heartbeat = json!({ "workerId": "hasty", "at": "x".repeat(n) }).to_string();
        fleet.ask_bus::<()>(&["PUBLISH", &topic, &heartbeat.replace("\"at\"", "\"since\"")]).await;
    }
    let counted = async || fleet.metric("convoke_bus_poison_total", &["channel=\"worker.heartbeat\""]).await;
    wait_for_value("messages that were set aside", 20.0, counted).await;
    let lines = fleet.member(0).printed();
    let about: Vec<&String> = lines.iter().filter(|line| line.contains("message rejected")).collect();
    assert_eq!(about.len(), 1, "{about:?}");
    assert!(about[0].contains("hasty") && about[0].contains("missing field `queues`"), "{about:?}");
}

/// Nodes of one cluster need not write alike: each reads both shapes.
#[tokio::test(flavor = "multi_thread")]
async fn nodes_that_write_as_orchestrix_does_and_nodes_that_do_not_take_runs_over_from_each_other() {
    let fleet = Fleet::builder(env!("CARGO_BIN_EXE_convoke")).size(2);
    let mut fleet = fleet.set_on("node-1", "bus.seed_format", "true").start().await;
    for index in [0, 1] {
        let queue = format!("held-{index}");
        let worker = fleet.bus_worker(&queue, &queue, 10).await;
        let jobs = vec![json!({ "type": "plain", "queue": queue }); 10];
        fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
        eventually("all runs", || async { (worker.held().len() == 10).then_some(()) }).await;
        assert!(fleet.terminate(index).await.success(), "it hands its runs over");
        worker.release_all();
        completed(&fleet, &queue, 10).await;
        fleet.restart(index).await;
        fleet.wait_until_active().await;
    }
    assert_eq!(fleet.metric("convoke_bus_poison_total", &[]).await, 0.0, "every message was read");
}

/// Has jobs run by a worker that deletes nothing. Their channel.
async fn acknowledge_all(fleet: &Fleet) -> String {
    let worker = fleet.bus_worker("foreign", "plain", 2).await;
    worker.only_ack();
    worker.release_all();
    let jobs = vec![json!({ "type": "plain", "queue": "plain" }); JOBS];
    fleet.any().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    completed(fleet, "plain", JOBS).await;
    format!("{}.job.dispatch.plain", fleet.prefix())
}

async fn completed(fleet: &Fleet, queue: &str, count: usize) {
    let path = format!("/v1/queues/{queue}");
    wait_for_value("completed jobs", json!(count), || async {
        fleet.any().read(&path).await["counts"]["completed"].clone()
    })
    .await;
}
