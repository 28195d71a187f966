//! Makes a PostgreSQL store keep a [chronicle](crate::invariants::Entry) of itself, and reads it.
//!
//! Each node connects under its own name (`application_name`), so the record says who wrote what; anything else that gets at
//! the store shows as itself. The record is made by triggers, in the transaction of each write: nothing escapes it, however
//! short it lasts, and what a crash of the server took back is not in it either.
//!
//! The store keeps a job in one table and its run in flight in another. Here the two are put together again: one entry for
//! each job that a transaction changed, from what the job was before to what it was after.

use std::collections::BTreeMap;

use convoke_core::jobs::{Ownership, Status};
use serde_json::Value;
use tokio_postgres::{Client, NoTls};

use super::waiting::eventually;
use crate::invariants::{Change, Entry, Row};

/// A store that keeps a chronicle of itself.
#[derive(Debug, Clone)]
pub struct Chronicler {
    /// Past every proxy, so that it is read whatever is cut.
    url: String,
}

impl Chronicler {
    /// To be installed once the tables are there and before there are jobs. `leader` is who sealed the present epoch: its
    /// seal is the first entry.
    pub async fn install(url: &str, leader: &str) -> Chronicler {
        let chronicler = Chronicler { url: url.into() };
        let client = chronicler.connect("chronicler").await;
        client.batch_execute(include_str!("sql/chronicle.sql")).await.expect("the chronicle can be installed");
        client.execute(include_str!("sql/first_seal.sql"), &[&leader]).await.expect("the first entry can be made");
        chronicler
    }

    /// Everything so far, in order.
    pub async fn entries(&self) -> Vec<Entry> {
        let client = self.connect("chronicler").await;
        let query = "select xid, writer, what, before::text, after::text from public.chronicle order by seq";
        let rows = client.query(query, &[]).await.expect("the chronicle can be read");
        let json =
            |text: Option<String>| text.map(|text| serde_json::from_str(&text).expect("what was written is JSON"));
        let row_changes = rows.iter().map(|row| RowChange {
            xid: row.get(0),
            writer: row.get(1),
            what: row.get(2),
            before: json(row.get(3)),
            after: json(row.get(4)),
        });
        put_together(row_changes)
    }

    /// Every job as it is now.
    pub async fn rows(&self) -> BTreeMap<String, Row> {
        let mut rows = BTreeMap::new();
        for entry in self.entries().await {
            match entry.change {
                Change::Job { id, after: Some(after), .. } => drop(rows.insert(id, after)),
                Change::Job { id, after: None, .. } => drop(rows.remove(&id)),
                Change::Sealed(_) => {}
            }
        }
        rows
    }

    /// Runs statements behind the cluster's back, under a name of their own.
    pub async fn meddle(&self, sql: &str) {
        self.connect("meddler").await.batch_execute(sql).await.expect("the statements run");
    }

    /// A connection of its own each time: the server may have been restarted since the last.
    async fn connect(&self, name: &str) -> Client {
        let mut config: tokio_postgres::Config = self.url.parse().expect("a PostgreSQL URL");
        config.application_name(name);
        let (client, connection) = eventually("PostgreSQL", || async { config.connect(NoTls).await.ok() }).await;
        tokio::spawn(connection);
        client
    }
}

/// A row that was written.
#[derive(Debug, Clone)]
struct RowChange {
    xid: String,
    writer: String,
    /// The table.
    what: String,
    before: Option<Value>,
    after: Option<Value>,
}

/// What is known of a job: its own row and that of its run in flight.
#[derive(Debug, Clone, Default)]
struct Known {
    job: Option<Value>,
    run: Option<Value>,
}

fn put_together(row_changes: impl Iterator<Item = RowChange>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    // Where the entry is that a transaction made for a job.
    let mut made: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row_change in row_changes {
        let RowChange { xid, writer, what, before, after } = row_change;
        if what == "convoke_cluster" {
            let sealed = after.as_ref().and_then(|row| row["sealed"].as_u64()).unwrap_or_default();
            entries.push(Entry { writer, change: Change::Sealed(sealed) });
            continue;
        }
        let id = before.as_ref().or(after.as_ref()).and_then(|row| row["id"].as_str());
        let id = id.expect("a row has its job's id").to_owned();
        let job = known.entry(id.clone()).or_default();
        // Not what was known, but what the row itself says it was: a difference is a breach, and must be seen.
        let before_now = |job: &Known| match what.as_str() {
            "convoke_runs" => Known { run: before.clone(), ..job.clone() }.row(),
            _ => Known { job: before.clone(), ..job.clone() }.row(),
        };
        let before_now = before_now(job);
        match what.as_str() {
            "convoke_runs" => job.run = after,
            _ => job.job = after,
        }
        let after_now = job.row();
        match made.get(&(xid.clone(), id.clone())).map(|at| &mut entries[*at].change) {
            Some(Change::Job { after, .. }) => *after = after_now,
            _ => {
                made.insert((xid, id.clone()), entries.len());
                entries.push(Entry { writer, change: Change::Job { id, before: before_now, after: after_now } });
            }
        }
    }
    entries
}

impl Known {
    /// The job as a whole: what its run in flight says where there is one, else what its own row does.
    fn row(&self) -> Option<Row> {
        let job = self.job.as_ref()?;
        let text = |row: &Value, field: &str| row[field].as_str().map(str::to_owned);
        let number = |row: &Value, field: &str| row[field].as_u64().unwrap_or_default();
        let code = |row: &Value, field: &str| u8::try_from(number(row, field)).unwrap_or(u8::MAX);
        let Some(run) = &self.run else {
            return Some(Row {
                status: Status::from_code(code(job, "state")).expect("a job has a state"),
                execution: text(job, "execution_id"),
                owner: text(job, "owner"),
                ownership: Ownership::Unowned,
                attempt: number(job, "attempt"),
                said: text(job, "result").or_else(|| text(job, "error")),
            });
        };
        Some(Row {
            status: if run["started_at"].is_null() { Status::Dispatched } else { Status::Running },
            execution: text(run, "execution_id"),
            owner: text(run, "owner"),
            ownership: Ownership::from_code(code(run, "ownership")).expect("a run is owned somehow"),
            attempt: number(run, "attempt"),
            said: None,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn row_change(xid: &str, writer: &str, what: &str, before: Value, after: Value) -> RowChange {
        let row = |row: Value| (!row.is_null()).then_some(row);
        RowChange { xid: xid.into(), writer: writer.into(), what: what.into(), before: row(before), after: row(after) }
    }

    fn job(state: Status, execution: Option<&str>, owner: Option<&str>) -> Value {
        json!({ "id": "a", "state": state.code(), "execution_id": execution, "owner": owner, "attempt": 0,
                "result": null, "error": null })
    }

    fn run(owner: Option<&str>, ownership: Ownership, started_at: Option<u64>) -> Value {
        json!({ "id": "a", "execution_id": "1", "owner": owner, "ownership": ownership.code(), "attempt": 1,
                "started_at": started_at })
    }

    #[test]
    fn what_one_transaction_does_to_a_job_is_one_entry() {
        let (waiting, running) = (job(Status::Pending, None, None), run(Some("n1"), Ownership::Owned, Some(1)));
        let done = job(Status::Completed, Some("1"), Some("n1"));
        let entries = put_together(
            [
                row_change("1", "n2", "convoke_jobs", Value::Null, waiting.clone()),
                row_change("2", "n2", "convoke_runs", Value::Null, run(None, Ownership::Unowned, None)),
                row_change("3", "n1", "convoke_runs", run(None, Ownership::Unowned, None), running.clone()),
                row_change("4", "n1", "convoke_runs", running, Value::Null),
                row_change("4", "n1", "convoke_jobs", waiting, done),
            ]
            .into_iter(),
        );
        let seen: Vec<_> = entries
            .iter()
            .map(|entry| match &entry.change {
                Change::Job { before, after, .. } => {
                    (entry.writer.as_str(), before.as_ref().map(|it| it.status), after.as_ref().map(|it| it.status))
                }
                Change::Sealed(_) => panic!("nothing was sealed"),
            })
            .collect();
        use Status::*;
        let expected = [
            ("n2", None, Some(Pending)),
            ("n2", Some(Pending), Some(Dispatched)),
            ("n1", Some(Dispatched), Some(Running)),
            ("n1", Some(Running), Some(Completed)),
        ];
        assert_eq!(seen, expected);
        assert_eq!(crate::invariants::j6_one_owner::check(&entries), []);
    }

    #[test]
    fn a_row_that_is_not_as_it_was_left_shows() {
        let entries = put_together(
            [
                row_change("1", "n2", "convoke_jobs", Value::Null, job(Status::Pending, None, None)),
                row_change("2", "n1", "convoke_runs", Value::Null, run(Some("n1"), Ownership::Owned, Some(1))),
                row_change("3", "n2", "convoke_runs", run(Some("n2"), Ownership::Owned, Some(1)), Value::Null),
            ]
            .into_iter(),
        );
        assert!(!crate::invariants::j6_one_owner::check(&entries).is_empty());
    }
}
