//! Makes a PostgreSQL store keep a [chronicle](crate::invariants::Entry) of itself, and reads it.
//!
//! Each node connects under its own name (`application_name`), so the record names the writer; anything else that gets at
//! the store shows as itself. The record is made by triggers, in the transaction of each write: nothing escapes it, however
//! short it lasts, and what a crash of the server took back is not in it either.
//!
//! The store keeps a job in one table and its run in flight in another: at first many runs in one row. Here they are put
//! together again: one entry for each job that a transaction changed, from what the job was before to what it was after.

use std::collections::BTreeMap;

use convoke_core::jobs::{Ownership, Status};
use serde_json::{Value, json};
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

/// The known state of a job: its own row and that of its run in flight.
#[derive(Debug, Clone, Default)]
struct Known {
    job: Option<Value>,
    run: Option<Value>,
}

fn put_together(row_changes: impl Iterator<Item = RowChange>) -> Vec<Entry> {
    let mut entries: Vec<Entry> = Vec::new();
    let mut known: BTreeMap<String, Known> = BTreeMap::new();
    // The ids of jobs by their numbers.
    let mut ids: BTreeMap<u64, String> = BTreeMap::new();
    // Where the entry is that a transaction made for a job.
    let mut made: BTreeMap<(String, String), usize> = BTreeMap::new();
    for row_change in row_changes.flat_map(RowChange::of_each_run) {
        let RowChange { xid, writer, what, before, after } = row_change;
        if what == "convoke_cluster" {
            let sealed = after.as_ref().and_then(|row| row["sealed"].as_u64()).unwrap_or_default();
            entries.push(Entry { writer, change: Change::Sealed(sealed) });
            continue;
        }
        let row = before.as_ref().or(after.as_ref()).expect("a row was written");
        let id = match (row["id"].as_str(), row["seq"].as_u64()) {
            (Some(id), seq) => {
                ids.extend(seq.map(|seq| (seq, id.to_owned())));
                id.to_owned()
            }
            (None, seq) => ids[&seq.expect("a row has its job's id or number")].clone(),
        };
        let job = known.entry(id.clone()).or_default();
        // Not the known state, but the row's own former state: a difference is a breach, and must be seen. Only a run
        // that had no row of its own yet is as it was dispatched.
        let before_now = match what.as_str() {
            FLIGHTS => job.row(),
            "convoke_runs" if before.is_none() && job.is_as_dispatched(after.as_ref()) => job.row(),
            "convoke_runs" => Known { run: before.clone(), ..job.clone() }.row(),
            _ => Known { job: before.clone(), ..job.clone() }.row(),
        };
        match what.as_str() {
            FLIGHTS => job.run = after.map(|run| job.dispatched(run)),
            "convoke_runs" => job.run = after,
            _ => {
                job.job = after;
                if job.has_ended() && job.is_as_dispatched(None) {
                    job.run = None;
                }
            }
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

/// The table of runs that are as they were dispatched.
const FLIGHTS: &str = "convoke_flights";

impl RowChange {
    /// A row of many runs as one change for each run.
    fn of_each_run(self) -> Vec<RowChange> {
        let Some(flight) = self.after.as_ref().filter(|_| self.what == FLIGHTS) else { return vec![self] };
        let all = |field: &str| flight[field].as_array().cloned().unwrap_or_default();
        let owned = if flight["owner"].is_null() { Ownership::Unowned } else { Ownership::Owned };
        let runs = all("seqs").into_iter().zip(all("executions")).map(|(seq, execution)| {
            json!({ "seq": seq, "execution_id": execution, "owner": flight["owner"], "ownership": owned.code(),
                    "as_dispatched": true, "started_at": null })
        });
        runs.map(|run| RowChange { after: Some(run), ..self.clone() }).collect()
    }
}

impl Known {
    /// A dispatch is the next attempt.
    fn dispatched(&self, mut run: Value) -> Value {
        let attempt = self.job.as_ref().and_then(|job| job["attempt"].as_u64()).unwrap_or_default();
        run["attempt"] = (attempt + 1).into();
        run
    }

    /// Whether its run has no row of its own yet: this run, if one is given.
    fn is_as_dispatched(&self, given: Option<&Value>) -> bool {
        let run = self.run.as_ref().filter(|run| run["as_dispatched"] == true);
        run.is_some_and(|run| given.is_none_or(|given| given["execution_id"] == run["execution_id"]))
    }

    fn has_ended(&self) -> bool {
        let state = self.job.as_ref().and_then(|job| u8::try_from(job["state"].as_u64()?).ok());
        state.and_then(Status::from_code).is_none_or(|status| !status.is_live())
    }
}

impl Known {
    /// The job as a whole: from its run in flight if there is one, else from its own row.
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
                result: text(job, "result").or_else(|| text(job, "error")),
            });
        };
        Some(Row {
            status: if run["started_at"].is_null() { Status::Dispatched } else { Status::Running },
            execution: text(run, "execution_id"),
            owner: text(run, "owner"),
            ownership: Ownership::from_code(code(run, "ownership")).expect("a run is owned somehow"),
            attempt: number(run, "attempt"),
            result: None,
        })
    }
}

#[cfg(test)]
mod tests {
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
    fn a_run_that_never_had_a_row_of_its_own_is_seen_all_the_same() {
        let waiting =
            |id: &str, seq: u64| json!({ "id": id, "seq": seq, "state": Status::Pending.code(), "attempt": 0 });
        let done = |id: &str, seq: u64| json!({ "id": id, "seq": seq, "state": Status::Completed.code(), "attempt": 1, "execution_id": id, "owner": "n1" });
        let flight = json!({ "pack": 1, "seqs": [7, 8], "executions": ["a", "b"], "owner": null });
        let entries = put_together(
            [
                row_change("1", "n2", "convoke_jobs", Value::Null, waiting("a", 7)),
                row_change("1", "n2", "convoke_jobs", Value::Null, waiting("b", 8)),
                row_change("2", "n2", FLIGHTS, Value::Null, flight),
                row_change("3", "n1", "convoke_jobs", waiting("a", 7), done("a", 7)),
                // The other one gets a row of its own first.
                row_change("4", "n3", "convoke_jobs", waiting("b", 8), waiting("b", 8)),
                row_change(
                    "4",
                    "n3",
                    "convoke_runs",
                    Value::Null,
                    json!({ "id": "b", "seq": 8, "execution_id": "b", "owner": null, "ownership": 0, "attempt": 1,
                            "started_at": null }),
                ),
            ]
            .into_iter(),
        );
        let of = |job: &str| -> Vec<_> {
            let changes = entries.iter().filter_map(|entry| match &entry.change {
                Change::Job { id, before, after } if id == job => {
                    let status = |row: &Option<Row>| row.as_ref().map(|row| row.status);
                    Some((entry.writer.clone(), status(before), status(after)))
                }
                _ => None,
            });
            changes.collect()
        };
        use Status::*;
        let steps = |last: (&str, Option<Status>, Option<Status>)| {
            [("n2", None, Some(Pending)), ("n2", Some(Pending), Some(Dispatched)), last]
                .map(|(writer, before, after)| (writer.to_owned(), before, after))
        };
        assert_eq!(of("a"), steps(("n1", Some(Dispatched), Some(Completed))));
        assert_eq!(of("b"), steps(("n3", Some(Dispatched), Some(Dispatched))), "nothing changed of it");
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
