//! Measures lists over many jobs.

use anyhow::Result;
use serde_json::Value;

use super::JobsArgs;
use super::enqueue::{self, repeat};
use super::wire::Target;
use crate::report::Report;

const ASKED: u64 = 200;
/// Pages to read before the page that counts as deep.
const DEEP_PAGES: usize = 100;

pub async fn measure(args: &JobsArgs, target: &Target, report: &mut Report) -> Result<()> {
    let queue = "bench-lists";
    report.phase("filling the store for lists");
    enqueue::batches(target, queue, args.many(), args.batch).await?;
    report.phase("lists");
    let deep = deep_cursor(target).await?;
    let lists = [
        ("listNewestP99Ms", "list, newest", "/v1/jobs?limit=50".to_owned()),
        ("listDeepP99Ms", "list, deep page", format!("/v1/jobs?limit=50&cursor={deep}")),
        ("listQueueP99Ms", "list, by queue", format!("/v1/jobs?queue={queue}&limit=50")),
        ("listStatusP99Ms", "list, by status", "/v1/jobs?status=pending&limit=50".to_owned()),
        ("listRareP99Ms", "list, of a type that is not there", "/v1/jobs?type=bench.none&limit=50".to_owned()),
        ("listQueuesP99Ms", "list of queues with counts", "/v1/queues".to_owned()),
    ];
    for (key, label, path) in lists {
        let run = repeat(target, target.request("GET", &path, ""), ASKED, 1).await?;
        report.add(key, &format!("{label}, p99 with {} jobs", args.many()), run.percentile(99.0), "ms");
    }
    Ok(())
}

async fn deep_cursor(target: &Target) -> Result<String> {
    let mut connection = target.connect().await?;
    let mut path = "/v1/jobs?limit=100".to_owned();
    let mut cursor = String::new();
    for _ in 0..DEEP_PAGES {
        let page: Value = serde_json::from_slice(connection.exchange(&target.request("GET", &path, "")).await?)?;
        let Some(next) = page["nextCursor"].as_str() else { break };
        cursor = next.to_owned();
        path = format!("/v1/jobs?limit=100&cursor={cursor}");
    }
    Ok(cursor)
}
