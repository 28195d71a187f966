//! Every query of every page on PostgreSQL goes by an index, and reads a number of rows that does not grow with the store.
//!
//! `convoke bench pages` fills the store and requests every page, every filter of the list of jobs, every pair of filters
//! and every preview of a bulk action; the server explains all of its statements meanwhile. So a page that is added
//! there is tested here. Times are not looked at: `convoke bench pages` prints them.

use std::collections::BTreeSet;
use std::process::Stdio;

use convoke_core::jobs::listing::ENTRIES_READ_MAX;
use convoke_testkit::process::{Durability, Explained, Postgres, eventually};
use tokio::process::Command;

/// More than [`READ_MAX`]: a page that read all jobs would be noticed.
const JOBS: u64 = 20_000;
/// What one statement may read of one table.
const READ_MAX: u64 = ENTRIES_READ_MAX as u64 + 1_000;
/// Tables that grow with the number of jobs, or of acts: they are never read without an index.
const INDEXED: [&str; 6] =
    ["convoke_jobs", "convoke_job_keys", "convoke_ended", "convoke_executions", "convoke_logs", "convoke_audit"];
/// Packs, and runs in flight. A list by status reads all of them if they are few: it stops counting at a limit.
const COUNTED: [&str; 4] = ["convoke_waiting", "convoke_flights", "convoke_runs", "convoke_completed"];
/// Words of the statements that pages are made of. All must have been seen: else pages were missed.
const SEEN: [&str; 8] = [
    "Reads at most $2 jobs. Returns",
    "Reads at most $2 jobs of each type",
    "Reads at most $4 jobs of each range",
    "The (state, queue) pairs",
    "Returns the number of the first job",
    "if list_by_status.sql would read more",
    "from convoke_audit",
    "join convoke_logs",
];

async fn bench_pages(store: &str, more: &[&str]) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_convoke"));
    command.args(["bench", "pages", "--json", "--store", store]).args(more);
    let output = command.stdin(Stdio::null()).kill_on_drop(true).output().await.expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{text}\n{}", String::from_utf8_lossy(&output.stderr));
    text
}

/// Returns what is wrong with a plan.
fn problems(explained: &Explained) -> Vec<String> {
    let is_wrong = |table: &str, kind: &str, rows: u64| {
        (INDEXED.contains(&table) && (kind == "Seq Scan" || rows > READ_MAX))
            || (COUNTED.contains(&table) && rows > READ_MAX)
    };
    let wrong = explained.nodes.iter().filter(|node| is_wrong(&node.table, &node.kind, node.rows));
    let first = explained.statement.trim().lines().next().unwrap_or_default().to_owned();
    wrong.map(|node| format!("{} reads {} rows of {}: {first}", node.kind, node.rows, node.table)).collect()
}

#[tokio::test]
async fn no_page_reads_a_table_without_an_index() {
    let postgres = Postgres::start(Durability::Fast).await;
    let url = postgres.create_database();
    let database = url.rsplit('/').next().and_then(|rest| rest.split('?').next()).expect("a name");
    let jobs = JOBS.to_string();
    bench_pages(&url, &["--requests", "1", "--jobs", &jobs]).await;
    postgres.explain_all(database).await;
    // Twice: an entry of the log can be spoilt by another session.
    let measured = bench_pages(&url, &["--requests", "1", "--no-fill"]).await;
    assert!(measured.matches("\"path\"").count() > 100, "{measured}");
    // The last entries may be on their way.
    let unseen = |plans: &[Explained]| -> Vec<&str> {
        SEEN.into_iter().filter(|words| !plans.iter().any(|it| it.statement.contains(words))).collect()
    };
    let plans = eventually("the plans of all statements", async || {
        let plans = postgres.explained();
        unseen(&plans).is_empty().then_some(plans)
    })
    .await;
    // Tasks of the node change what is due and have plans of their own (`postgres_plans`); pages read.
    let is_read = |it: &&Explained| {
        let lines = it.statement.lines().filter(|line| !line.trim_start().starts_with("--"));
        let text = lines.collect::<String>().to_lowercase();
        text.trim_start().starts_with("select") || text.trim_start().starts_with("with recursive")
    };
    let reads = plans.iter().filter(is_read);
    let wrong: BTreeSet<String> = reads.flat_map(problems).collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
