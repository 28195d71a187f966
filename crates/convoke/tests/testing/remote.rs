//! The HTTP interface: what other languages use.

use convoke::Http;
use http::{Method, StatusCode};
use serde_json::{Value, json};

use super::*;

pub struct Remote {
    pub server: Server,
    http: Http,
}

impl Remote {
    pub async fn start(seed: u64) -> Remote {
        let server = Server::builder().seed(seed).http("127.0.0.1:0").start().await.expect("it starts");
        let url = server.url().expect("it listens");
        Remote { http: convoke::connect::http(&url, None).expect("an address"), server }
    }

    pub async fn ask(&self, method: Method, path: &str, body: Value) -> Value {
        self.http.json(method, path, Some(&body).filter(|body| !body.is_null())).await.expect("accepted")
    }

    pub async fn get(&self, path: &str) -> Value {
        self.ask(Method::GET, path, Value::Null).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Value {
        self.ask(Method::POST, path, body).await
    }

    async fn refused(&self, method: Method, path: &str, body: Value) -> (StatusCode, Value) {
        let body = serde_json::to_vec(&body).expect("JSON");
        let (status, text) = self.http.send(method, path, Some(body.into())).await.expect("a response");
        (status, serde_json::from_slice::<Value>(&text).expect("JSON")["error"].clone())
    }

    pub async fn complete(&self, worker: &str, run: &Value) {
        let event = json!({ "executionId": run["executionId"], "jobId": run["jobId"], "kind": "completed" });
        let reported = self.post("/v1/worker/report", json!({ "workerId": worker, "events": [event] })).await;
        assert_eq!(reported["accepted"], 1, "{reported}");
    }
}

#[tokio::test]
async fn a_day_has_twenty_four_ticks_of_an_hourly_schedule() {
    let remote = Remote::start(0).await;
    let schedule = json!({ "type": "report", "queue": "reports", "cron": "0 * * * *", "overlap": "allow" });
    remote.ask(Method::PUT, "/v1/schedules/hourly", schedule).await;
    let moved = remote.post("/v1/test/clock", json!({ "advance": "24h" })).await;
    assert_eq!(moved, json!({ "now": "2030-01-02T00:00:00Z", "running": 0 }));
    let listed = remote.get("/v1/jobs?limit=100").await;
    let mut jobs = listed["jobs"].as_array().expect("a list").clone();
    jobs.reverse();
    let made = jobs.iter().map(|job| (job["scheduledAt"].clone(), job["createdAt"].clone()));
    let hour = |hour: u32| json!((start() + HOUR * hour).to_string());
    assert_eq!(made.collect::<Vec<_>>(), (1..=24).map(|tick| (hour(tick), hour(tick))).collect::<Vec<_>>());
}

#[tokio::test]
async fn a_worker_runs_each_tick_before_time_goes_on() {
    let remote = Arc::new(Remote::start(0).await);
    remote.post("/v1/worker/register", json!({ "workerId": "w", "queues": ["reports"], "concurrency": 1 })).await;
    let schedule = json!({ "type": "report", "queue": "reports", "every": "1h" });
    remote.ask(Method::PUT, "/v1/schedules/hourly", schedule).await;
    let worker = remote.clone();
    let working = tokio::spawn(async move {
        let mut ran = Vec::new();
        while ran.len() < 10 {
            let poll = json!({ "workerId": "w", "max": 1, "wait": "20s" });
            for run in worker.post("/v1/worker/poll", poll).await["jobs"].as_array().expect("runs") {
                ran.push(worker.get("/v1/test/clock").await["now"].clone());
                worker.complete("w", run).await;
            }
        }
        ran
    });
    remote.post("/v1/test/clock", json!({ "to": "2030-01-01T10:00:00Z" })).await;
    let hours = (1..=10u32).map(|hour| json!((start() + HOUR * hour).to_string()));
    assert_eq!(working.await.expect("it ends"), hours.collect::<Vec<_>>());
}

#[tokio::test]
async fn polls_and_waits_end_in_real_time() {
    let remote = Remote::start(0).await;
    remote.post("/v1/worker/register", json!({ "workerId": "w", "queues": ["q"], "concurrency": 1 })).await;
    let polled = remote.post("/v1/worker/poll", json!({ "workerId": "w", "max": 1, "wait": "50ms" })).await;
    assert_eq!(polled, json!({ "jobs": [], "cancel": [], "drain": false }));
    let made = remote.post("/v1/jobs", json!({ "type": "a", "queue": "q", "delay": "1h" })).await;
    let id = made["id"].as_str().expect("an id");
    let job = remote.get(&format!("/v1/jobs/{id}?wait=50ms")).await;
    assert_eq!((&job["status"], remote.server.now()), (&json!("scheduled"), start()));
    // A wait that time ends is not over: the client waits for a job that runs meanwhile.
    let waiting = format!("/v1/jobs/{id}?wait=30s");
    let moving = async {
        remote.post("/v1/test/clock", json!({ "advance": "1h", "waitForRuns": "0s" })).await;
        let polled = remote.post("/v1/worker/poll", json!({ "workerId": "w", "max": 1, "wait": "20s" })).await;
        remote.complete("w", &polled["jobs"][0]).await;
    };
    let (job, ()) = tokio::join!(remote.get(&waiting), moving);
    assert_eq!(job["status"], "completed");
}

#[tokio::test]
async fn wrong_requests_are_rejected_with_the_field() {
    let remote = Remote::start(0).await;
    let cases = [
        (Method::POST, "/v1/test/clock", json!({}), 400, "invalid_argument", "advance"),
        (
            Method::POST,
            "/v1/test/clock",
            json!({ "advance": "1h", "to": "2031-01-01T00:00:00Z" }),
            400,
            "invalid_argument",
            "advance",
        ),
        (Method::POST, "/v1/test/clock", json!({ "advance": "soon" }), 400, "invalid_argument", "advance"),
        (Method::POST, "/v1/test/clock", json!({ "to": "2029-12-31T00:00:00Z" }), 400, "invalid_argument", "to"),
        (Method::POST, "/v1/test/clock", json!({ "to": "4000-01-01T00:00:00Z" }), 400, "invalid_argument", "to"),
        (Method::POST, "/v1/test/clock", json!({ "by": "1h" }), 400, "invalid_argument", "by"),
        (
            Method::POST,
            "/v1/test/faults",
            json!({ "dropHeartbeats": { "worker": "w", "count": 0 } }),
            400,
            "invalid_argument",
            "dropHeartbeats.count",
        ),
        (Method::POST, "/v1/test/run-until-idle", json!({ "timeout": 5 }), 400, "invalid_argument", "timeout"),
        (Method::PUT, "/v1/test/clock", json!({}), 405, "method_not_allowed", ""),
        (Method::POST, "/v1/test/clocks", json!({}), 404, "not_found", ""),
    ];
    for (method, path, body, status, code, field) in cases {
        let (got, error) = remote.refused(method, path, body.clone()).await;
        let field_got = error["field"].as_str().unwrap_or_default();
        assert_eq!((got.as_u16(), error["code"].as_str(), field_got), (status, Some(code), field), "{body}: {error}");
    }
    assert_eq!(remote.server.now(), start());
}

#[tokio::test]
async fn faults_are_set_shown_and_removed() {
    let remote = Remote::start(0).await;
    let faults = json!({ "failReports": 2, "dropHeartbeats": { "worker": "w" }, "cutOff": "v" });
    let set = json!({ "failReports": 2, "loseReplies": 0, "dropHeartbeats": { "w": 1 }, "cutOff": ["v"] });
    assert_eq!(remote.post("/v1/test/faults", faults).await, set);
    assert_eq!(remote.get("/v1/test/faults").await, set);
    let (status, error) = remote.refused(Method::POST, "/v1/worker/poll", json!({ "workerId": "v", "max": 1 })).await;
    assert_eq!((status.as_u16(), error["code"].as_str()), (503, Some("unavailable")), "{error}");
    let none = json!({ "failReports": 0, "loseReplies": 0, "dropHeartbeats": {}, "cutOff": [] });
    assert_eq!(remote.ask(Method::DELETE, "/v1/test/faults", Value::Null).await, none);
}

#[tokio::test]
async fn a_worker_whose_connection_is_cut_is_dead_when_time_moves() {
    let remote = Remote::start(0).await;
    for worker in ["gone", "stays"] {
        remote.post("/v1/worker/register", json!({ "workerId": worker, "queues": [worker], "concurrency": 2 })).await;
    }
    let poll = |worker| remote.post("/v1/worker/poll", json!({ "workerId": worker, "max": 1, "wait": "20s" }));
    // Its process ends in the middle of a poll.
    let cut = tokio::time::timeout(Duration::from_millis(100), poll("gone")).await;
    assert!(cut.is_err(), "there is nothing to run");
    let moving = async {
        remote.post("/v1/test/clock", json!({ "advance": "10m" })).await;
        remote.get("/v1/workers").await
    };
    let workers = tokio::select! {
        workers = moving => workers,
        polled = poll("stays") => panic!("there is nothing to run: {polled}"),
    };
    let ids = workers["workers"].as_array().expect("a list").iter().map(|worker| worker["workerId"].clone());
    assert_eq!(ids.collect::<Vec<_>>(), ["stays"]);
}

async fn manage_schedules(client: &convoke::Client, server: &Server) {
    // The job of a tick stays: nobody runs it.
    let hourly = client.schedule("notes", Note("tick".into())).every(HOUR).overlap(convoke::Overlap::Allow);
    let made = hourly.queue("notes").tag("hourly").paused().await.expect("made");
    assert_eq!((made.name.as_str(), made.job_type.as_str(), made.queue.as_deref()), ("notes", "note", Some("notes")));
    assert_eq!((made.every, made.paused, made.next_run_at), (Some(HOUR), true, None));
    let raw = client.schedule_raw("raw", "report", json!({"n": 1})).cron("0 3 * * *").tz("Europe/Berlin");
    let raw = raw.missed(convoke::Missed::All).overlap(convoke::Overlap::Allow).await.expect("made");
    assert_eq!(
        (raw.tz.as_deref(), raw.missed, raw.overlap),
        (Some("Europe/Berlin"), convoke::Missed::All, convoke::Overlap::Allow)
    );
    let names = client.schedules().await.expect("read").into_iter().map(|each| each.name).collect::<Vec<_>>();
    assert_eq!(names, ["notes", "raw"]);
    let resumed = client.resume_schedule("notes").await.expect("resumed");
    server.advance(HOUR).await.expect("moved");
    let read = client.read_schedule("notes").await.expect("read");
    assert_eq!(read.last_run_at, resumed.next_run_at, "{resumed:?} then {read:?}");
    let triggered = client.trigger_schedule("raw").await.expect("triggered");
    assert_eq!(triggered.definition.job_type.as_str(), "report");
    assert!(client.pause_schedule("raw").await.expect("paused").paused);
    for name in ["notes", "raw"] {
        client.remove_schedule(name).await.expect("removed");
    }
    assert!(client.schedules().await.expect("read").is_empty());
    assert!(client.read_schedule("notes").await.is_err());
    for wrong in [
        client.schedule("", Note("x".into())).every(HOUR).await,
        client.schedule("both", Note("x".into())).every(HOUR).cron("@daily").await,
        client.schedule("queue", Note("x".into())).every(HOUR).queue("").await,
    ] {
        wrong.expect_err("refused");
    }
}

#[tokio::test]
async fn a_client_manages_schedules_over_http_as_in_process() {
    let remote = Remote::start(0).await;
    manage_schedules(&remote.server.client(), &remote.server).await;
    let client = convoke::Client::connect(&remote.server.url().expect("it listens")).await.expect("connects");
    manage_schedules(&client, &remote.server).await;
}
