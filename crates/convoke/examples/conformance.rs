//! The adapter of this crate for the conformance suite in `sdks/conformance`: commands as JSON lines on standard input,
//! responses and events on standard output. It has no logic of its own: the suite decides what each handler does.
//!
//! ```sh
//! cargo build -p convoke-server && cargo build -p convoke --example conformance
//! cd sdks/conformance
//! CONVOKE_BIN=../../target/debug/convoke python3 -m conformance -- ../../target/debug/examples/conformance
//! ```
//!
//! Arguments and results stay raw JSON, so that integers of any size pass through exactly.

use std::collections::HashMap;
use std::io::Write;
use std::sync::Arc;
use std::time::Duration;

use convoke::{Client, Context, Error, Http, Job, JobId, LogLevel, Result, Worker, encode};
use convoke_core::duration;
use convoke_core::jobs::JobSpec;
use http::Method;
use parking_lot::Mutex;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};
use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinHandle;

/// Takes any arguments, and returns any result.
#[derive(Serialize, Deserialize)]
struct Directed(Box<RawValue>);

impl Job for Directed {
    const TYPE: &'static str = "told";
    type Output = Box<RawValue>;
}

#[derive(Serialize, Deserialize)]
struct Typed {
    to: String,
    count: i64,
}

impl Job for Typed {
    const TYPE: &'static str = "typed";
    type Output = Typed;
}

type Fields = Map<String, Value>;

/// The values of a command that must not be interpreted.
#[derive(Deserialize)]
struct Raw {
    args: Option<Box<RawValue>>,
    result: Option<Box<RawValue>>,
    #[serde(default)]
    jobs: Vec<RawJob>,
}

#[derive(Deserialize)]
struct RawJob {
    r#type: String,
    args: Box<RawValue>,
    #[serde(default)]
    options: Fields,
}

/// A command for the handler of a run.
struct Order {
    command: String,
    fields: Fields,
    result: Option<Box<RawValue>>,
}

/// The handlers that wait for commands, by the ids of their runs.
type Orders = Arc<Mutex<HashMap<String, mpsc::UnboundedSender<Order>>>>;

#[derive(Default)]
struct Adapter {
    servers: String,
    token: Option<String>,
    client: Option<Client>,
    orders: Orders,
    working: Option<(oneshot::Sender<()>, JoinHandle<Result<()>>)>,
}

/// A failure of a command: its code and a text.
struct Wrong(&'static str, String);

impl<E: Into<Error>> From<E> for Wrong {
    fn from(error: E) -> Self {
        Wrong("error", error.into().to_string())
    }
}

fn unsupported(what: &str) -> Wrong {
    Wrong("unsupported", what.to_owned())
}

fn write(line: &impl Serialize) {
    let mut text = serde_json::to_vec(line).expect("a value is JSON");
    text.push(b'\n');
    let mut output = std::io::stdout().lock();
    output.write_all(&text).and_then(|()| output.flush()).expect("the suite reads");
}

fn respond(id: &Value, outcome: Result<Box<RawValue>, Wrong>) {
    #[derive(Serialize)]
    struct Response<'a> {
        id: &'a Value,
        #[serde(skip_serializing_if = "Option::is_none")]
        ok: Option<Box<RawValue>>,
        #[serde(skip_serializing_if = "Option::is_none")]
        error: Option<Value>,
    }
    let (ok, error) = match outcome {
        Ok(ok) => (Some(ok), None),
        Err(Wrong(code, message)) => (None, Some(json!({ "code": code, "message": message }))),
    };
    write(&Response { id, ok, error });
}

fn raw(value: &impl Serialize) -> Box<RawValue> {
    serde_json::value::to_raw_value(value).expect("a value is JSON")
}

fn text(fields: &Fields, name: &str) -> String {
    fields.get(name).and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn span(fields: &Fields, name: &str) -> Result<Duration, Wrong> {
    duration::parse(&text(fields, name)).map_err(|error| Wrong("error", error))
}

/// Returns an enqueue request with these options, which are those of `POST /v1/jobs`.
fn request(
    client: &Client,
    job_type: &str,
    args: &RawValue,
    options: &Fields,
) -> Result<convoke::Enqueue<Value>, Wrong> {
    let mut fields = options.clone();
    fields.insert("type".into(), job_type.into());
    let spec: JobSpec = serde_json::from_value(fields.into()).map_err(Error::from)?;
    let mut request = client.enqueue_raw(job_type, args);
    let JobSpec { template, delay, run_at, .. } = spec;
    if let Some(queue) = template.queue {
        request = request.queue(queue.as_str());
    }
    if let Some(priority) = template.priority {
        request = request.priority(priority);
    }
    if let Some(delay) = delay {
        request = request.delay(delay);
    }
    if let Some(at) = run_at {
        request = request.run_at(at);
    }
    if let Some(retries) = template.max_retries {
        request = request.max_retries(retries);
    }
    if let Some(policy) = template.retry_policy {
        request = request.retry_policy(policy);
    }
    if let Some(timeout) = template.timeout {
        request = request.timeout(timeout);
    }
    if let Some(id) = template.correlation_id {
        request = request.correlation_id(id);
    }
    if let Some(key) = template.unique_key {
        request = request.unique_key(key);
    }
    if let Some(time) = template.unique_for {
        request = request.unique_for(time);
    }
    Ok(template.tags.into_iter().flatten().fold(request, |request, tag| request.tag(tag)))
}

impl Adapter {
    fn client(&self) -> Result<&Client, Wrong> {
        self.client.as_ref().ok_or_else(|| Wrong("error", "connect comes first".into()))
    }

    async fn execute(&mut self, command: &str, fields: &Fields, line: &str) -> Result<Box<RawValue>, Wrong> {
        let values: Raw = serde_json::from_str(line).map_err(Error::from)?;
        match command {
            "hello" => return Ok(raw(&json!({ "client": "convoke-rust", "version": env!("CARGO_PKG_VERSION") }))),
            "connect" => self.connect(fields).await?,
            // The types of this program are fixed: "told" and "typed" have the handlers of these names.
            "register" if fields["type"] != fields["handler"] => return Err(unsupported("a type of another name")),
            "register" => {}
            "start" => self.start(fields).await?,
            "enqueue" => {
                let args = values.args.unwrap_or_default();
                let options = fields["options"].as_object().cloned().unwrap_or_default();
                let handle = request(self.client()?, &text(fields, "type"), &args, &options)?.await?;
                return Ok(raw(&json!({ "jobId": handle.id(), "created": handle.created() })));
            }
            "enqueueBatch" => {
                let client = self.client()?;
                let requests = values.jobs.iter().map(|job| request(client, &job.r#type, &job.args, &job.options));
                let handles = client.enqueue_batch(requests.collect::<Result<Vec<_>, Wrong>>()?).await?;
                let jobs = handles.iter().map(|each| json!({ "jobId": each.id(), "created": each.created() }));
                return Ok(raw(&json!({ "jobs": jobs.collect::<Vec<_>>() })));
            }
            "cancel" => {
                let handle = self.client()?.handle::<Value>(job_id(fields)?);
                match fields.get("reason").and_then(Value::as_str) {
                    Some(reason) => handle.cancel_because(reason).await?,
                    None => handle.cancel().await?,
                };
            }
            "putSchedule" | "removeSchedule" => self.schedule(command, fields, values.args).await?,
            "log" | "progress" | "complete" | "fail" | "block" => {
                let order = Order { command: command.into(), fields: fields.clone(), result: values.result };
                let orders = self.orders.lock();
                let handler = orders.get(&text(fields, "executionId"));
                handler
                    .and_then(|orders| orders.send(order).ok())
                    .ok_or_else(|| Wrong("error", "no such run".into()))?;
            }
            other => return Err(unsupported(other)),
        }
        Ok(raw(&json!({})))
    }

    async fn connect(&mut self, fields: &Fields) -> Result<(), Wrong> {
        let servers = fields["servers"].as_array().into_iter().flatten().filter_map(Value::as_str);
        self.servers = servers.collect::<Vec<_>>().join(",");
        self.token = fields["token"].as_str().map(str::to_owned);
        self.client = Some(match &self.token {
            Some(token) => Client::connect_with(&self.servers, token).await?,
            None => Client::connect(&self.servers).await?,
        });
        Ok(())
    }

    async fn start(&mut self, fields: &Fields) -> Result<(), Wrong> {
        let queues = fields["queues"].as_array().into_iter().flatten().filter_map(Value::as_str);
        let concurrency = fields["concurrency"].as_u64().and_then(|count| u32::try_from(count).ok()).unwrap_or(1);
        let orders = self.orders.clone();
        let mut worker = Worker::connect(&self.servers).await?;
        if let Some(token) = &self.token {
            worker = worker.token(token);
        }
        let worker = worker
            .queues(queues)
            .concurrency(concurrency)
            .shutdown_grace(span(fields, "drain")?)
            .handle(move |context: Context, job: Directed| directed(context, job, orders.clone()))
            .handle(async |_: Context, job: Typed| -> Result<Typed> { Ok(job) });
        let (stop, stopped) = oneshot::channel();
        let working = tokio::spawn(worker.run_until(async {
            let _ = stopped.await;
        }));
        self.working = Some((stop, working));
        Ok(())
    }

    async fn schedule(&self, command: &str, fields: &Fields, args: Option<Box<RawValue>>) -> Result<(), Wrong> {
        #[derive(Serialize)]
        struct Schedule {
            #[serde(flatten)]
            options: Fields,
            r#type: Value,
            #[serde(skip_serializing_if = "Option::is_none")]
            every: Option<Value>,
            #[serde(skip_serializing_if = "Option::is_none")]
            cron: Option<Value>,
            args: Box<RawValue>,
        }
        let http = Http::connect(&self.servers, self.token.clone())?;
        let path = format!("/v1/schedules/{}", encode(&text(fields, "name")));
        if command == "removeSchedule" {
            http.json::<Option<Value>>(Method::DELETE, &path, None::<&()>).await?;
            return Ok(());
        }
        let options = fields["options"].as_object().cloned().unwrap_or_default();
        let (every, cron) = (fields.get("every").cloned(), fields.get("cron").cloned());
        let schedule =
            Schedule { options, r#type: fields["type"].clone(), every, cron, args: args.unwrap_or_default() };
        http.json::<Value>(Method::PUT, &path, Some(&schedule)).await?;
        Ok(())
    }
}

fn job_id(fields: &Fields) -> Result<JobId, Wrong> {
    Ok(serde_json::from_value(fields["jobId"].clone()).map_err(Error::from)?)
}

/// Waits for the end of a job, whatever it is.
async fn wait(client: Client, fields: Fields) -> Result<Box<RawValue>, Wrong> {
    #[derive(Serialize)]
    struct Ended {
        status: Value,
        result: Option<Box<RawValue>>,
        error: Option<String>,
    }
    let limit = Duration::from_secs_f64(fields["seconds"].as_f64().unwrap_or_default());
    let handle = client.handle::<Box<RawValue>>(job_id(&fields)?);
    let ended = match tokio::time::timeout(limit, handle.wait()).await {
        Err(_) => return Err(Wrong("timeout", format!("job {} has not ended", handle.id()))),
        Ok(Ok(result)) => Ended { status: "completed".into(), result: Some(result), error: None },
        Ok(Err(Error::NotCompleted { status, error, .. })) => Ended { status: json!(status), result: None, error },
        Ok(Err(error)) => return Err(error.into()),
    };
    Ok(raw(&ended))
}

async fn directed(context: Context, Directed(args): Directed, orders: Orders) -> Result<Box<RawValue>> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Run<'a> {
        event: &'static str,
        job_id: JobId,
        execution_id: String,
        r#type: &'a str,
        attempt: u32,
        args: Box<RawValue>,
    }
    /// A handler learns that it must stop by `cancelled`, or by being dropped: both end here.
    struct Stopped(Option<String>);
    impl Drop for Stopped {
        fn drop(&mut self) {
            if let Some(execution_id) = &self.0 {
                write(&json!({ "event": "stopped", "executionId": execution_id }));
            }
        }
    }
    let execution_id = context.execution_id().to_string();
    let mut stopped = Stopped(Some(execution_id.clone()));
    let (sender, mut received) = mpsc::unbounded_channel();
    orders.lock().insert(execution_id.clone(), sender);
    let (job_id, attempt) = (context.job_id(), context.attempt());
    write(&Run { event: "run", job_id, execution_id: execution_id.clone(), r#type: context.job_type(), attempt, args });
    loop {
        let order = tokio::select! {
            order = received.recv() => order.ok_or_else(|| Error::failed("the adapter ends"))?,
            () = context.cancelled() => return Err(Error::failed("the run must stop")),
        };
        let fields = &order.fields;
        match order.command.as_str() {
            "log" => {
                let level: LogLevel = serde_json::from_value(fields["level"].clone())?;
                context.log_at(level, text(fields, "message")).await?;
            }
            "progress" => {
                let percent = fields["percent"].as_u64().and_then(|percent| u8::try_from(percent).ok());
                context.progress(percent.unwrap_or_default(), text(fields, "message")).await?;
            }
            // Neither an await nor a yield: what a handler does that computes.
            "block" => std::thread::sleep(Duration::from_secs_f64(fields["seconds"].as_f64().unwrap_or_default())),
            _ => {
                stopped.0 = None;
                return match order.command.as_str() {
                    "fail" if fields["permanent"] == true => Err(Error::permanent(text(fields, "error"))),
                    "fail" => Err(Error::failed(text(fields, "error"))),
                    _ => Ok(order.result.unwrap_or_default()),
                };
            }
        }
    }
}

#[tokio::main]
async fn main() -> Result<()> {
    let mut adapter = Adapter::default();
    let (sender, mut lines) = mpsc::unbounded_channel::<String>();
    std::thread::spawn(move || {
        std::io::stdin().lines().map_while(|line| line.ok()).try_for_each(|line| sender.send(line))
    });
    while let Some(line) = lines.recv().await {
        let fields: Fields = serde_json::from_str(&line)?;
        let (id, command) = (fields["id"].clone(), text(&fields, "command"));
        // These take long, and must not delay the next command.
        match (command.as_str(), &adapter.client) {
            ("wait", Some(client)) => {
                let client = client.clone();
                tokio::spawn(async move { respond(&id, wait(client, fields).await) });
            }
            ("stop", _) => {
                let working = adapter.working.take();
                tokio::spawn(async move {
                    if let Some((stop, working)) = working {
                        let _ = stop.send(());
                        let ended = working.await.map_err(Error::other).and_then(|ended| ended);
                        return respond(&id, ended.map(|()| raw(&json!({}))).map_err(Wrong::from));
                    }
                    respond(&id, Ok(raw(&json!({}))));
                });
            }
            _ => respond(&id, adapter.execute(&command, &fields, &line).await),
        }
    }
    // Without a drain, as a process that is killed.
    std::process::exit(0);
}
