//! A store in a file: crashes, locks, migrations, errors of the disk.

use std::path::{Path, PathBuf};
use std::time::Duration;

use convoke_adapters::sqlite::{SqliteLeases, SqliteStore};
use convoke_core::jobs::schedule::Schedule;
use convoke_core::jobs::{JobSpec, NewJob, Outcome, Ownership, Priority, RetrySettings, RunReport, Status};
use convoke_core::ports::Leases;
use convoke_core::ports::leases::Floor;
use convoke_core::ports::store::*;
use convoke_core::{Epoch, Error, ExecutionId, JobId, JobType, Json, QueueName};
use convoke_testkit::conformance::store::schedules::schedule;
use convoke_testkit::conformance::store::unreadable::{self, Column};
use jiff::Timestamp;
use uuid::Uuid;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_700_000_000 + second).expect("in range")
}

fn queue() -> QueueName {
    QueueName::new("default").expect("a name")
}

fn new_job() -> NewJob {
    let spec = JobSpec::new(JobType::new("test").expect("a name"));
    spec.into_job(JobId(Uuid::now_v7()), at(0), &RetrySettings::default()).expect("valid")
}

fn job_with_args(bytes: usize) -> NewJob {
    new_job().with(|job| job.args = Json::of(&"x".repeat(bytes)).expect("JSON"))
}

fn order(limit: usize) -> DispatchOrder {
    DispatchOrder {
        now: at(1),
        windows: vec![Window::new(queue(), limit)],
        executions: (0..limit).map(|_| ExecutionId(Uuid::now_v7())).collect(),
    }
}

/// Copies the files of a store as a crash at this moment would leave them.
fn copy_as_after_a_crash(from: &Path, to: &Path) {
    for suffix in ["", "-wal"] {
        let with = |path: &Path| PathBuf::from(format!("{}{suffix}", path.display()));
        std::fs::copy(with(from), with(to)).expect("copied");
    }
}

#[tokio::test]
async fn what_was_acknowledged_survives_a_crash() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("live.db");
    let store = SqliteStore::open(&path).expect("opens");
    let jobs: Vec<NewJob> = (0..100).map(|_| new_job()).collect();
    let ids: Vec<JobId> = jobs.iter().map(|job| job.id).collect();
    store.insert(jobs).await.expect("inserted");
    let fence = store.seal(Epoch(1)).await.expect("sealed");
    let runs = store.dispatch(fence, order(50)).await.expect("dispatched").runs;
    let ends = runs
        .iter()
        .take(20)
        .map(|run| RunReport::of(run.job_id, run.execution_id).ended(at(2), Outcome::Completed { result: None }, 0.0));
    store.record(ends.collect()).await.expect("recorded");

    let crashed = directory.path().join("crashed.db");
    copy_as_after_a_crash(&path, &crashed);
    let again = SqliteStore::open(&crashed).expect("opens again");
    let found = again.get(&ids).await.expect("read");
    let count = |status| found.iter().flatten().filter(|job| job.status == status).count();
    assert_eq!((count(Status::Completed), count(Status::Dispatched), count(Status::Pending)), (20, 30, 50));
    let counts = again.queue(&queue()).await.expect("read").expect("there").counts;
    assert_eq!((counts.get(Status::Completed), counts.in_flight(), counts.get(Status::Pending)), (20, 30, 50));
    assert_eq!(again.sealed().await.expect("read"), Epoch(1));
}

#[tokio::test]
async fn a_second_opener_is_told_who_has_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let first = SqliteStore::open(&path).expect("opens");
    let refused = SqliteStore::open(&path).expect_err("locked");
    let text = refused.to_string();
    assert!(matches!(refused, Error::Conflict(_)), "{text}");
    assert!(text.contains(&std::process::id().to_string()) && text.contains("convoke.db.lock"), "{text}");

    drop(first);
    SqliteStore::open(&path).expect("free once it is closed");
}

#[tokio::test]
async fn opening_ends_the_term_of_a_dead_predecessor_and_the_epoch_rises() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let hour = Duration::from_secs(3_600);
    let store = SqliteStore::open(&path).expect("opens");
    let first = store.leases().elect("coordinator", "a", hour, Floor::UNKNOWN).await.expect("elected");
    store.leases().elect("another", "a", hour, Floor::UNKNOWN).await.expect("elected");
    drop(store);

    let leases = SqliteStore::open(&path).expect("opens again").leases();
    assert_eq!(leases.read("coordinator").await.expect("read"), None);
    let second = leases.elect("coordinator", "b", hour, Floor::UNKNOWN).await.expect("elected at once");
    assert!(second.epoch > first.epoch);
    let other = leases.read("another").await.expect("read").expect("somebody else's term is left alone");
    assert_eq!(other.holder, "a");
}

#[tokio::test]
async fn leases_are_shared_with_whoever_opens_the_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    let outside = SqliteLeases::open(&path).expect("needs no lock");
    let hour = Duration::from_secs(3_600);
    let lease = outside.elect("n", "outside", hour, Floor::UNKNOWN).await.expect("elected");
    let refused = store.leases().elect("n", "inside", hour, Floor::UNKNOWN).await.expect_err("taken");
    assert!(matches!(refused, Error::Conflict(_)), "{refused}");
    outside.resign("n", "outside", lease.epoch).await.expect("resigned");
    let next = store.leases().elect("n", "inside", hour, Floor::UNKNOWN).await.expect("elected");
    assert!(next.epoch > lease.epoch);
}

#[tokio::test]
async fn a_file_of_a_newer_version_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let raw = rusqlite::Connection::open(&path).expect("opens");
    raw.pragma_update(None, "user_version", 999).expect("set");
    drop(raw);
    let refused = SqliteStore::open(&path).expect_err("newer");
    assert!(refused.to_string().contains("newer version") && refused.to_string().contains("999"), "{refused}");
}

#[tokio::test]
async fn a_file_that_cannot_be_ours_is_refused_with_its_name() {
    let directory = tempfile::tempdir().expect("a directory");
    let missing = directory.path().join("no/such/convoke.db");
    let refused = SqliteStore::open(&missing).expect_err("no directory");
    assert!(refused.to_string().contains("no/such/convoke.db"), "{refused}");

    let text = directory.path().join("text.db");
    std::fs::write(&text, "this is not a database, however long it is. ".repeat(100)).expect("written");
    let refused = SqliteStore::open(&text).expect_err("not a database");
    assert!(refused.to_string().contains("is not a SQLite database"), "{refused}");

    let foreign = directory.path().join("foreign.db");
    let raw = rusqlite::Connection::open(&foreign).expect("opens");
    raw.execute_batch("create table theirs (x)").expect("made");
    drop(raw);
    let refused = SqliteStore::open(&foreign).expect_err("somebody else's");
    assert!(refused.to_string().contains("another program"), "{refused}");
    let raw = rusqlite::Connection::open(&foreign).expect("opens");
    let mode: String = raw.pragma_query_value(None, "journal_mode", |row| row.get(0)).expect("read");
    assert_eq!(mode, "delete", "it was left as it was");
}

/// A disk of a few megabytes.
struct SmallDisk {
    directory: PathBuf,
}

impl SmallDisk {
    /// `None` if this machine does not permit the mount.
    fn mount(directory: &Path) -> Option<SmallDisk> {
        let done = std::process::Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"])
            .arg(directory)
            .output()
            .ok()?;
        done.status.success().then(|| SmallDisk { directory: directory.into() })
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _ = std::process::Command::new("umount").arg("-l").arg(&self.directory).output();
    }
}

#[tokio::test]
async fn a_full_disk_is_unavailable_while_it_lasts_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let Some(_disk) = SmallDisk::mount(directory.path()) else {
        eprintln!("skipped: this machine does not let us mount a small disk");
        return;
    };
    let ballast = directory.path().join("ballast");
    std::fs::write(&ballast, vec![0u8; 2 << 20]).expect("fits");
    let store = SqliteStore::open(directory.path().join("convoke.db")).expect("opens");
    let mut acknowledged = Vec::new();
    let refused = loop {
        let job = job_with_args(64 << 10);
        let id = job.id;
        match store.insert(vec![job]).await {
            Ok(_) => acknowledged.push(id),
            Err(error) => break error,
        }
    };
    assert!(matches!(refused, Error::Unavailable { .. }), "{refused}");
    assert!(!acknowledged.is_empty());
    let read = store.get(&acknowledged).await.expect("reads go on");
    assert!(read.iter().all(Option::is_some));

    std::fs::remove_file(&ballast).expect("removed");
    let late = job_with_args(64 << 10);
    let id = late.id;
    store.insert(vec![late]).await.expect("recovers without a restart");
    acknowledged.push(id);
    assert!(store.get(&acknowledged).await.expect("read").iter().all(Option::is_some));
    let counts = store.queue(&queue()).await.expect("read").expect("there").counts;
    assert_eq!(counts.get(Status::Pending), acknowledged.len() as u64);
}

#[tokio::test]
async fn one_verb_that_the_database_fails_does_not_fail_its_neighbours() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    store.insert(vec![new_job()]).await.expect("inserted");
    // A trigger that fails one kind of job stands for any error of the database.
    let raw = rusqlite::Connection::open(&path).expect("opens");
    raw.execute_batch(
        "create trigger stumble before insert on jobs when new.document like '%bad%'
         begin select raise(abort, 'stumbled'); end",
    )
    .expect("made");

    let insert = |job: NewJob| {
        let store = store.clone();
        tokio::spawn(async move { store.insert(vec![job]).await })
    };
    let good: Vec<NewJob> = (0..50).map(|_| new_job()).collect();
    let ids: Vec<JobId> = good.iter().map(|job| job.id).collect();
    let mut waiting = Vec::new();
    let mut bad = Vec::new();
    for job in good {
        waiting.push(insert(job));
        bad.push(insert(new_job().with(|job| job.correlation_id = Some("bad".into()))));
    }
    for result in waiting {
        result.await.expect("no panic").expect("inserted");
    }
    for result in bad {
        let error = result.await.expect("no panic").expect_err("stumbled");
        assert!(matches!(error, Error::Unavailable { .. }) && error.to_string().contains("stumbled"), "{error}");
    }
    assert!(store.get(&ids).await.expect("read").iter().all(Option::is_some));
    let counts = store.queue(&queue()).await.expect("read").expect("there").counts;
    assert_eq!(counts.get(Status::Pending), 51, "the counts follow what was committed");
}

#[tokio::test]
async fn a_refusal_leaves_the_verbs_committed_with_it_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("convoke.db")).expect("opens");
    let stale = store.seal(Epoch(1)).await.expect("sealed");
    store.seal(Epoch(2)).await.expect("sealed");
    let mut waiting = Vec::new();
    for _ in 0..50 {
        let inserting = store.clone();
        waiting.push(tokio::spawn(async move { inserting.insert(vec![new_job()]).await.map(drop) }));
        let dispatching = store.clone();
        waiting.push(tokio::spawn(async move {
            match dispatching.dispatch(stale, order(10)).await {
                Err(Error::Fenced { .. }) => Ok(()),
                other => panic!("a former leader dispatched: {other:?}"),
            }
        }));
    }
    for result in waiting {
        result.await.expect("no panic").expect("the result that it should have");
    }
    let counts = store.queue(&queue()).await.expect("read").expect("there").counts;
    assert_eq!((counts.get(Status::Pending), counts.in_flight()), (50, 0));
}

/// Every verb of a leader rejects a former one: without the comparison in any of them this test fails.
#[tokio::test]
async fn a_former_leader_can_write_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let store = SqliteStore::open(directory.path().join("convoke.db")).expect("opens");
    let job = new_job();
    let id = job.id;
    let later = NewJob { run_at: Some(at(60)), ..new_job() };
    store.insert(vec![job, later]).await.expect("inserted");
    let former = store.seal(Epoch(1)).await.expect("sealed");
    let run = store.dispatch(former, order(1)).await.expect("dispatched").runs.remove(0);
    store.seal(Epoch(2)).await.expect("sealed");

    fn check<T: std::fmt::Debug>(what: &str, result: convoke_core::Result<T>) {
        assert!(matches!(result, Err(Error::Fenced { .. })), "{what}: {result:?}");
    }
    let lost = RunReport::of(run.job_id, run.execution_id).ended(at(9), Outcome::Lost { error: "gone".into() }, 0.0);
    let cutoffs = Cutoffs { completed: at(99), cancelled: at(99), dead: at(99) };
    check("promote", store.promote(former, at(99), 10).await);
    check("dispatch", store.dispatch(former, order(1)).await);
    check("end_as_leader", store.end_as_leader(former, vec![lost]).await);
    check("mark_cleaned", store.mark_cleaned(former, at(99), &[id]).await);
    check("expire", store.expire(former, cutoffs, 10).await);
    check("tick", store.tick(former, Vec::new()).await);
    check("seal", store.seal(Epoch(2)).await);
    let counts = store.queue(&queue()).await.expect("read").expect("there").counts;
    assert_eq!((counts.get(Status::Dispatched), counts.get(Status::Scheduled)), (1, 1), "nothing moved");
}

#[tokio::test]
async fn the_log_starts_over_while_writers_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    let mut largest = 0;
    for _ in 0..300 {
        store.insert(vec![job_with_args(1 << 20)]).await.expect("inserted");
        let wal = std::fs::metadata(format!("{}-wal", path.display())).expect("there").len();
        largest = largest.max(wal);
    }
    assert!(largest < 200 << 20, "the log grew to {largest} bytes");
}

/// Returns SQLite's plan of a statement.
fn plan(raw: &rusqlite::Connection, sql: &str) -> String {
    let mut statement = raw.prepare(&format!("explain query plan {sql}")).expect("prepared");
    let mut rows = statement.raw_query();
    let mut plan = String::new();
    while let Some(row) = rows.next().expect("explained") {
        plan += &format!("{}\n", row.get::<_, String>(3).expect("text"));
    }
    plan
}

/// Returns a statement of a file with the values of its names, as the store builds it.
fn built(text: &str, names: &[(&str, &str)]) -> String {
    let (first, second) = (Status::Dispatched.code(), Status::Running.code());
    let constants = [
        ("{pending}", Status::Pending.code().to_string()),
        ("{dispatched}", Status::Dispatched.code().to_string()),
        ("{in_flight}", format!("{first}, {second}")),
        ("{handing_off}", Ownership::HandingOff.code().to_string()),
        ("{orphan_pending}", Ownership::OrphanPending.code().to_string()),
    ];
    let text = names.iter().fold(text.to_owned(), |text, (name, value)| text.replace(name, value));
    constants.iter().fold(text, |text, (name, value)| text.replace(name, value))
}

#[test]
fn runs_of_a_worker_or_an_owner_are_found_by_index() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let raw = rusqlite::Connection::open(&path).expect("opens");
    let in_flight = |index: &str, key: &str| {
        let names = [("{columns}", "id, document"), ("{index}", index), ("{key}", key)];
        built(include_str!("../src/sqlite/sql/in_flight.sql"), &names)
    };
    let moving = "ownership in ({handing_off}, {orphan_pending})";
    for (sql, expected) in [
        (in_flight("jobs_of_worker", "worker = ?2"), "SEARCH jobs USING INDEX jobs_of_worker (worker=? AND id>?)"),
        (in_flight("jobs_moving", moving), "SEARCH jobs USING INDEX jobs_moving (id>?)"),
        (
            in_flight("jobs_in_flight", "owner is ?3 and (worker is not null) = 0"),
            "SEARCH jobs USING INDEX jobs_in_flight (owner=? AND <expr>=? AND id>?)",
        ),
        (built(include_str!("../src/sqlite/sql/holders.sql"), &[]), "SEARCH j USING INDEX jobs_in_flight (owner>?)"),
    ] {
        let plan = plan(&raw, &sql);
        assert!(plan.contains(expected), "{expected}:\n{plan}");
        assert!(!plan.contains("TEMP B-TREE"), "{plan}");
    }
}

#[test]
fn a_dispatch_reads_one_range_in_its_order() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    drop(SqliteStore::open(&path).expect("opens"));
    let raw = rusqlite::Connection::open(&path).expect("opens");
    let sql = built(include_str!("../src/sqlite/sql/pending.sql"), &[("{columns}", "seq, id, document, args")]);
    let plan = plan(&raw, &sql);
    assert_eq!(plan, "SEARCH jobs USING INDEX jobs_pending (queue_id=?)\n", "no sorting, no other table");
}

#[tokio::test]
async fn the_rank_follows_the_due_time_through_retries_and_redrives() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    let raw = rusqlite::Connection::open(&path).expect("opens");
    let check = |what: &str| {
        let read = |row: &rusqlite::Row<'_>| Ok((row.get("rank")?, row.get("due_at")?));
        let (rank, due_at): (i64, i64) = raw.query_row("select rank, due_at from jobs", [], read).expect("read");
        let due_at = Timestamp::from_microsecond(due_at).expect("in range");
        assert_eq!(rank, Priority::High.rank(due_at), "{what}");
        due_at
    };
    let job = NewJob { run_at: Some(at(1)), ..new_job() };
    let job = job.with(|job| (job.priority, job.max_retries) = (Priority::High, 1));
    let id = job.id;
    store.insert(vec![job]).await.expect("inserted");
    check("scheduled");
    let fence = store.seal(Epoch(1)).await.expect("sealed");
    for what in ["retried", "failed"] {
        store.promote(fence, at(1_000), 10).await.expect("promoted");
        check("promoted");
        let run = store.dispatch(fence, order(1)).await.expect("dispatched").runs.remove(0);
        let failed = Outcome::Failed { error: "no".into(), retry: true };
        store.record(vec![RunReport::of(id, run.execution_id).ended(at(10), failed, 1.0)]).await.expect("recorded");
        assert!(check(what) > at(1), "the retry is due later");
    }
    store.redrive(&[id], at(2_000)).await.expect("redriven");
    assert_eq!(check("redriven"), at(2_000));
}

#[tokio::test]
async fn jobs_without_search_keys_leave_no_rows_and_deleted_jobs_take_theirs_along() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    let raw = rusqlite::Connection::open(&path).expect("opens");
    let keys = || raw.query_row("select count(*) from job_keys", [], |row| row.get::<_, i64>(0)).expect("counted");
    store.insert(vec![new_job()]).await.expect("inserted");
    assert_eq!(keys(), 0);
    let job = new_job().with(|job| (job.correlation_id, job.max_retries) = (Some("order 7 \"é\"".into()), 0));
    let id = job.id;
    store.insert(vec![job]).await.expect("inserted");
    assert_eq!(keys(), 1);

    let fence = store.seal(Epoch(1)).await.expect("sealed");
    let runs = store.dispatch(fence, order(2)).await.expect("dispatched").runs;
    let run = runs.iter().find(|run| run.job_id == id).expect("dispatched");
    let failed =
        RunReport::of(id, run.execution_id).ended(at(2), Outcome::Failed { error: "no".into(), retry: true }, 0.0);
    store.record(vec![failed]).await.expect("recorded");
    assert_eq!(store.purge(&[id], &[Status::Failed]).await.expect("purged"), 1);
    assert_eq!(keys(), 0);
}

#[tokio::test]
async fn a_document_of_a_newer_node_is_read_and_of_one_that_is_none_what_can_be_read() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    let (newer, broken) = (new_job(), new_job());
    let ids = [newer.id, broken.id];
    store.insert(vec![newer.clone(), broken]).await.expect("inserted");
    let raw = rusqlite::Connection::open(&path).expect("opens");
    let replace = |id: JobId, document: &str| {
        let changed = raw.execute("update jobs set document = ?2 where id = ?1", (id.0.as_bytes(), document));
        assert_eq!(changed.expect("updated"), 1);
    };
    replace(ids[0], r#"{"v":1,"type":"test","colour":{"name":"red"}}"#);
    let found = store.get(&ids[..1]).await.expect("read").remove(0).expect("there");
    assert_eq!(found.definition, newer.definition);

    for (document, job_type) in [
        ("", "unreadable"),
        ("{}", "unreadable"),
        (r#"{"v":2,"type":"test"}"#, "test"),
        (r#"{"v":1,"type":7}"#, "unreadable"),
    ] {
        replace(ids[1], document);
        let shown = store.get(&ids[1..]).await.expect("read").remove(0).expect("there");
        assert_eq!(shown.definition.job_type.as_str(), job_type, "{document}");
        let page = store.list(JobQuery { limit: 10, ..JobQuery::default() }).await.expect("listed");
        assert_eq!(page.jobs.len(), 2, "{document}");
    }
    let fence = store.seal(Epoch(1)).await.expect("sealed");
    let result = store.dispatch(fence, order(2)).await.expect("dispatched");
    let unreadable: Vec<_> = result.unreadable.iter().map(|run| run.job).collect();
    assert_eq!((result.runs.len(), unreadable), (2, vec![ids[1]]), "the other job is not held up");
}

#[tokio::test]
async fn a_job_that_cannot_be_read_fails_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    let raw = rusqlite::Connection::open(&path).expect("opens");
    let write = async |job: JobId, column: Column, text: &'static str| {
        let name = if column == Column::Document { "document" } else { "args" };
        let changed = raw.execute(&format!("update jobs set {name} = ?2 where id = ?1"), (job.0.as_bytes(), text));
        assert_eq!(changed.expect("written"), 1);
    };
    unreadable::a_job_that_cannot_be_read_fails_alone(&store, write).await;
}

#[tokio::test]
async fn a_schedule_or_a_worker_that_cannot_be_read_hides_no_other() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("convoke.db");
    let store = SqliteStore::open(&path).expect("opens");
    for name in ["a", "b"] {
        store.put_schedule(Schedule { next_run_at: Some(at(10)), ..schedule(name) }).await.expect("put");
    }
    let raw = rusqlite::Connection::open(&path).expect("opens");
    raw.execute("update schedules set document = '{}' where name = 'a'", ()).expect("written");
    raw.execute("insert into workers (id, document) values ('w', '{}')", ()).expect("written");
    let names = |schedules: Vec<Schedule>| schedules.iter().map(|each| each.name.to_string()).collect::<Vec<_>>();
    assert_eq!(names(store.schedules().await.expect("schedules")), ["b"]);
    assert_eq!(names(store.due_schedules(at(99), 1).await.expect("due").due), ["b"]);
    assert!(store.workers().await.expect("workers").is_empty());
}
