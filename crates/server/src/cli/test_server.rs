//! `convoke test-server`: a coordinator in memory for tests, whose time stands still until the test moves it.

use anyhow::Result;
use clap::Args;
use convoke::testing::Server;
use jiff::Timestamp;
use serde_json::json;

use super::{Usage, line};
use crate::config::{self, Surroundings};
use crate::logs;
use crate::stop::Stop;

pub const HELP: &str = "\
Requests that only a test server has:
  GET  /v1/test/clock           the virtual time
  POST /v1/test/clock           {\"advance\":\"24h\"} or {\"to\":\"2030-01-02T00:00:00Z\"}: moves it, and lets everything
                                happen that is due until then
  POST /v1/test/run-until-idle  {\"timeout\":\"10s\"}: waits until connected workers have nothing to do
  POST /v1/test/faults          {\"failReports\":3}, {\"dropHeartbeats\":{\"worker\":\"w1\"}}, {\"killLeader\":true} …

Example:
  convoke test-server --http 127.0.0.1:3999 &
  convoke enqueue report --delay 24h --server http://127.0.0.1:3999
  curl -d '{\"advance\":\"24h\"}' http://127.0.0.1:3999/v1/test/clock";

#[derive(Debug, Args)]
pub struct TestServerArgs {
    /// Address of the HTTP API; with port 0 the system chooses one
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:0")]
    http: String,
    /// Seed of all random numbers and ids: the same seed and the same requests have the same results
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// Virtual time at which it starts, as in RFC 3339, or now [default: 2030-01-01T00:00:00Z]
    #[arg(long, value_name = "TIME", value_parser = start_time)]
    start: Option<Timestamp>,
    /// Allow listening beyond loopback: every client that reaches it has full access
    #[arg(long)]
    insecure: bool,
    /// Print one line of JSON when it is ready, instead of its URL
    #[arg(long)]
    json: bool,
}

fn start_time(text: &str) -> Result<Timestamp, String> {
    match text {
        "now" => Ok(Timestamp::now()),
        text => text.parse().map_err(|_| "expected a time such as 2030-01-01T00:00:00Z, or now".to_owned()),
    }
}

pub async fn run(args: TestServerArgs) -> Result<()> {
    let variables = config::variables();
    let mut surroundings = Surroundings::read(&variables, "test-server").map_err(Usage)?;
    if !variables.contains_key("LOG_LEVEL") {
        // The output of a test run is for its own lines.
        surroundings.log_level = "warn";
    }
    logs::start(&surroundings, &[]);
    // Before anything that takes time, so that a signal during the start is not lost.
    let mut stop = Stop::listen()?;
    let mut builder = Server::builder().http(&args.http).seed(args.seed).insecure(args.insecure);
    if let Some(start) = args.start {
        builder = builder.start_at(start);
    }
    let server = builder.start().await.map_err(|error| crate::serve::not_listening("--http", error))?;
    let url = server.url().unwrap_or_default();
    let ready = match args.json {
        true => json!({ "url": url, "now": server.now(), "seed": args.seed }).to_string(),
        false => url,
    };
    line(ready)?;
    stop.asked().await;
    Ok(())
}
