//! `convoke_enqueue(job jsonb)` beside `JobSpec::into_job`: the same requests result in the same jobs and the same
//! errors.
#![cfg(feature = "postgres")]

use std::time::Duration;

use convoke_adapters::postgres::PostgresStore;
use convoke_core::jobs::priority::HEAD_START;
use convoke_core::jobs::template::{TAG_BYTES_MAX, TAGS_MAX};
use convoke_core::jobs::{Jitter, Job, JobSpec, RetrySettings};
use convoke_core::limits::{ARGS_BYTES_MAX, JSON_DEPTH_MAX, NAME_BYTES_MAX, RETRIES_MAX};
use convoke_core::ports::store::*;
use convoke_core::strict::Strict;
use convoke_core::{Invalid, JobId};
use convoke_testkit::process::SharedPostgres;
use convoke_testkit::scale::Scaled;
use jiff::Timestamp;
use serde::Deserialize;
use serde_json::{Map, Value, json};
use tokio_postgres::Client;
use uuid::Uuid;

async fn connect(url: &str) -> Client {
    let (client, connection) = tokio_postgres::connect(url, tokio_postgres::NoTls).await.expect("connects");
    tokio::spawn(connection);
    client
}

/// Pseudo-random numbers from a seed.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: usize) -> usize {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }

    fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }
}

fn nested(depth: usize) -> Value {
    (1..depth).fold(json!([]), |inner, _| json!([inner]))
}

/// Valid values of each field, the last of them at a limit; and invalid ones, the first just over a limit.
fn values(number: u64) -> Vec<(&'static str, Vec<Value>, Vec<Value>)> {
    // No two cases have the same id or key.
    let key = |bytes: usize| json!(format!("{number}-{}", "k".repeat(bytes - number.to_string().len() - 1)));
    let id = Uuid::from_u128(0x0198_c0de_0000_7000_8000_0000_0000_0000 + u128::from(number) + 1);
    let name = |bytes: usize| json!("ä".repeat(bytes / 2) + &"x".repeat(bytes % 2));
    let args = |bytes: usize| json!("x".repeat(bytes - 2));
    // A list of numbers and a text with commas: `jsonb` writes a space after each comma between items.
    let commas = |bytes: usize| {
        let mut list: Vec<Value> = vec![json!(1); 200_000];
        list.push(json!("x".repeat(bytes - 2 * list.len() - 16) + "\\, \": \",,"));
        assert_eq!(Value::from(list.clone()).to_string().len(), bytes);
        json!(list)
    };
    let tags = |count: usize| json!((0..count).map(|n| n.to_string()).collect::<Vec<_>>());
    let no_duration = [json!("100y"), json!(5), json!(""), json!("30m1h"), json!("-5s"), json!(true)];
    let too_long = [json!("36500d1ms"), json!("99999999999999999999999s")];
    let wrong = |some: &[Value], also: &[Value]| [some, also].concat();
    vec![
        (
            "type",
            vec![json!("email.send"), json!("größe ✓\"\\/"), name(NAME_BYTES_MAX)],
            vec![name(NAME_BYTES_MAX + 1), json!(""), json!("a\u{85}b"), json!(7), Value::Null],
        ),
        (
            "queue",
            vec![Value::Null, json!("default"), json!("email"), name(NAME_BYTES_MAX)],
            vec![name(NAME_BYTES_MAX + 1), json!(""), json!("a\nb"), json!([]), json!({})],
        ),
        (
            "args",
            vec![
                Value::Null,
                json!({"b": [1, 2.5, "ä\u{1}"], "a": null}),
                nested(JSON_DEPTH_MAX),
                args(ARGS_BYTES_MAX),
                commas(ARGS_BYTES_MAX),
                json!({"a, \"b\": \\": ["c: d", "e, \\\" f"]}),
            ],
            vec![args(ARGS_BYTES_MAX + 1), commas(ARGS_BYTES_MAX + 1), nested(JSON_DEPTH_MAX + 1)],
        ),
        (
            "priority",
            vec![Value::Null, json!("low"), json!("normal"), json!("high"), json!("critical")],
            vec![json!("urgent"), json!(1), json!("")],
        ),
        (
            "maxRetries",
            vec![Value::Null, json!(0), json!(3), json!(7), json!(RETRIES_MAX), json!(5.0), json!(1e2), json!(-0.0)],
            vec![
                json!(RETRIES_MAX + 1),
                json!(f64::from(RETRIES_MAX) + 1.0),
                json!(-1),
                json!(-1.0),
                json!(1.5),
                json!("3"),
                json!(4_294_967_296u64),
                json!(1e300),
            ],
        ),
        (
            "retryPolicy",
            vec![
                Value::Null,
                json!({}),
                json!({"multiplier": 3}),
                json!({"initialDelay": "1s500ms", "multiplier": 1.25, "maxDelay": "36500d", "jitter": "none"}),
                json!({"initialDelay": "0", "multiplier": 1000, "maxDelay": "1h30m"}),
                json!({"initialDelay": "10s", "multiplier": 2.0, "maxDelay": "10m", "jitter": "full"}),
            ],
            vec![
                json!({"multiplier": 1000.1}),
                json!({"multiplier": 0.5}),
                json!({"multiplier": "2"}),
                json!({"initialDelay": "1h", "maxDelay": "59m59s999ms"}),
                json!({"initialDelay": null}),
                json!({"initialDelay": 5}),
                json!({"jitter": "some"}),
                json!({"jitter": null}),
                json!({"delay": "1s"}),
                json!("10s"),
                json!([]),
                json!(["1s"]),
            ],
        ),
        (
            "timeout",
            vec![Value::Null, json!("1ms"), json!("1h30m"), json!("1d2h3m4s5ms"), json!("36500d")],
            wrong(&too_long, &wrong(&no_duration, &[json!("0"), json!("0s")])),
        ),
        (
            "correlationId",
            vec![Value::Null, json!("c"), json!("a\tb ✓ \"{}\\,'"), name(NAME_BYTES_MAX)],
            vec![name(NAME_BYTES_MAX + 1), json!(""), json!(7)],
        ),
        ("uniqueKey", vec![key(20), key(NAME_BYTES_MAX)], vec![key(NAME_BYTES_MAX + 1), json!(""), json!(7)]),
        (
            "tags",
            vec![Value::Null, json!([]), json!(["a", "b \"ä\""]), json!([name(TAG_BYTES_MAX)]), tags(TAGS_MAX)],
            vec![
                tags(TAGS_MAX + 1),
                json!([name(TAG_BYTES_MAX + 1)]),
                json!(["a", "a"]),
                json!([""]),
                json!(["a\n"]),
                json!("a"),
            ],
        ),
        ("uniqueFor", vec![Value::Null, json!("1h"), json!("36500d")], wrong(&too_long, &no_duration)),
        (
            "id",
            vec![
                Value::Null,
                json!(id),
                json!(id.simple().to_string()),
                json!(id.braced().to_string().to_uppercase()),
                json!(id.urn().to_string()),
            ],
            vec![
                json!(Uuid::nil()),
                json!(Uuid::max()),
                json!("7"),
                json!(7),
                json!("0198c0de-0000-7000-8000-0000-0000-00ff"),
                json!("{0198c0de000070008000000000000ff0}"),
                json!(format!(" {id}")),
            ],
        ),
        ("delay", vec![Value::Null, json!("0s"), json!("1h"), json!("36500d")], wrong(&too_long, &no_duration)),
        (
            "runAt",
            vec![
                Value::Null,
                json!("1970-01-01T00:00:00Z"),
                json!("2100-03-01t15:00:00.5+02:00"),
                json!("2100-03-01 15:00:00.123456789-03:30"),
                json!("2100-03-01T15:00:59.999999999z"),
                json!("9999-12-30T22:00:00Z"),
            ],
            vec![
                json!("9999-12-30T22:00:01Z"),
                json!("tomorrow"),
                json!(""),
                json!("2026-02-30T00:00:00Z"),
                json!("0000-01-01T00:00:00Z"),
                json!("2100-03-01T13:00Z"),
                json!("2100-03-01T13:00:60Z"),
                json!("2100-03-01T24:00:00Z"),
                json!("2100-03-01T13:00:00+02"),
                json!("2100-03-01T13:00:00+16:00"),
                json!("2100-03-01T13:00:00.1234567890Z"),
                json!("+002100-03-01T13:00:00Z"),
                json!("21000301T130000Z"),
                json!("2100-03-01T13:00:00Z[UTC]"),
                json!(7),
            ],
        ),
    ]
}

/// Returns a request with some fields, at most one of which is wrong, and the name of that one.
fn request(dice: &mut Dice, number: u64) -> (Value, Option<String>) {
    let mut fields = Map::new();
    let values = values(number);
    for (field, fine, _) in &values {
        if *field == "type" || dice.below(3) == 0 {
            fields.insert((*field).to_owned(), dice.pick(fine).clone());
        }
    }
    let has = |fields: &Map<String, Value>, field: &str| fields.get(field).is_some_and(|value| !value.is_null());
    let mut wrong = None;
    if has(&fields, "delay") && has(&fields, "runAt") {
        wrong = Some("runAt");
    } else if has(&fields, "uniqueFor") && !has(&fields, "uniqueKey") {
        wrong = Some("uniqueFor");
    } else if dice.below(2) == 0 {
        let (field, _, bad) = dice.pick(&values);
        let key = values.iter().find(|(field, ..)| *field == "uniqueKey").expect("a key");
        fields.insert((*field).to_owned(), dice.pick(bad).clone());
        wrong = Some(*field);
        match *field {
            "delay" => drop(fields.remove("runAt")),
            "runAt" => drop(fields.remove("delay")),
            "uniqueFor" => drop(fields.insert("uniqueKey".into(), key.1[0].clone())),
            _ => {}
        }
    } else if dice.below(20) == 0 {
        fields.insert("colour".into(), json!("red"));
        wrong = Some("colour");
    } else if dice.below(20) == 0 {
        fields.remove("type");
        wrong = Some("type");
    }
    (Value::Object(fields), wrong.map(str::to_owned))
}

/// The reason of a rejection.
#[derive(Debug)]
enum Refused {
    /// A rule of a field.
    Invalid(Invalid),
    /// The request could not be parsed.
    Unreadable(String),
}

/// Two databases for the same requests: one through core, one through SQL.
struct Pair {
    core: (PostgresStore, Client),
    sql: (PostgresStore, Client),
    defaults: RetrySettings,
}

impl Pair {
    async fn open(defaults: RetrySettings) -> Pair {
        let open = async || {
            let url = SharedPostgres::get().create_database();
            let store = PostgresStore::connect_with(&url, &defaults).await.expect("connects");
            (store, connect(&url).await)
        };
        Pair { core: open().await, sql: open().await, defaults }
    }

    async fn by_core(&self, text: &str) -> Result<JobId, Refused> {
        // As the HTTP API and the bus read it.
        let mut parser = serde_json::Deserializer::from_str(text);
        let read = JobSpec::deserialize(Strict(&mut parser));
        let spec = read.map_err(|error| Refused::Unreadable(error.to_string()))?;
        let new = spec.into_job(JobId(Uuid::now_v7()), Timestamp::now(), &self.defaults).map_err(Refused::Invalid)?;
        Ok(self.core.0.insert(vec![new]).await.expect("what core accepts is stored")[0].id)
    }

    async fn by_sql(&self, text: &str) -> Result<JobId, String> {
        let row = self.sql.1.query_one("select convoke_enqueue($1::text::jsonb)", &[&text]).await;
        row.map(|row| JobId(row.get(0))).map_err(|error| error.as_db_error().expect("by the server").message().into())
    }
}

/// Returns a job with its columns that are not read as part of it.
async fn stored((store, client): &(PostgresStore, Client), id: JobId) -> (Job, String, Option<Vec<String>>, bool) {
    let job = store.get(&[id]).await.expect("get").remove(0).expect("there");
    let select = "select j.document, j.keys, k.until is not null as reserved,
                         j.due_at - w.rank = j.priority * $2::bigint as ranked, k.job_id = j.id as has_key,
                         (select array_agg(k.key order by array_position(j.keys, k.key))
                          from convoke_job_keys k where k.seq = j.seq) as found_by
                  from convoke_jobs j
                  join convoke_waiting w on w.pack = j.pack and w.seqs[j.place - w.first + 1] = j.seq
                  left join convoke_unique_keys k on k.key = j.unique_key
                  where j.id = $1";
    let row = client.query_one(select, &[&id.0, &(HEAD_START.as_micros() as i64)]).await.expect("there");
    let keys: Option<Vec<String>> = row.get("keys");
    assert!(row.get::<_, bool>("ranked"));
    assert_eq!(row.get::<_, Option<Vec<String>>>("found_by"), keys);
    assert_eq!(row.get::<_, Option<bool>>("has_key"), job.definition.unique_key.as_ref().map(|_| true));
    (job, row.get("document"), keys, row.get("reserved"))
}

/// Compares all but the id, the times and the spaces in the arguments.
fn assert_same(text: &str, core: &Job, sql: &Job) {
    let value = |job: &Job| job.definition.args.to::<Value>().expect("JSON");
    assert_eq!(value(core), value(sql), "{text}");
    let until_run = |job: &Job| job.scheduled_at.map(|at| at.duration_since(job.created_at).as_secs() / 60);
    if text.contains(r#""runAt":""#) {
        assert_eq!(core.scheduled_at, sql.scheduled_at, "{text}");
    }
    assert!(until_run(core).zip(until_run(sql)).is_none_or(|(a, b)| a.abs_diff(b) <= 1), "{text}");
    let mut like_core = sql.clone();
    like_core.definition.args = core.definition.args.clone();
    like_core.id = core.id;
    like_core.created_at = core.created_at;
    like_core.scheduled_at = sql.scheduled_at.and(core.scheduled_at);
    assert_eq!(like_core, *core, "{text}");
}

/// Returns how many were accepted.
async fn compare(defaults: RetrySettings, seed: u64, cases: u64) -> u64 {
    let pair = Pair::open(defaults).await;
    let (mut dice, mut accepted) = (Dice(seed), 0);
    for number in 0..cases {
        let (request, wrong) = request(&mut dice, number);
        let text = request.to_string();
        let shown = &text[..text.floor_char_boundary(600)];
        match (pair.by_core(&text).await, pair.by_sql(&text).await) {
            (Ok(by_core), Ok(by_sql)) => {
                assert_eq!(wrong, None, "{shown}");
                let (core, sql) = (stored(&pair.core, by_core).await, stored(&pair.sql, by_sql).await);
                assert_same(shown, &core.0, &sql.0);
                assert_eq!((core.1, core.2, core.3), (sql.1, sql.2, sql.3), "{shown}");
                accepted += 1;
            }
            (Err(Refused::Invalid(by_core)), Err(by_sql)) => {
                assert_eq!(by_sql, by_core.to_string(), "{shown}");
                let field = wrong.expect("only what is wrong is refused");
                assert!(by_core.field.starts_with(&field), "{by_core}: {shown}");
            }
            // Each parser has its own words; both name what is expected.
            (Err(Refused::Unreadable(by_core)), Err(by_sql)) => {
                let field = wrong.expect("only what is wrong is refused");
                assert!(by_sql.contains(&field), "{by_core} / {by_sql}: {shown}");
                for words in
                    ["a duration such as", "at most 100 years", "an instant such as", "unknown field", "missing field"]
                {
                    assert_eq!(by_core.contains(words), by_sql.contains(words), "{by_core} / {by_sql}: {shown}");
                }
            }
            (core, sql) => panic!("core: {core:?}, SQL: {sql:?}: {shown}"),
        }
    }
    accepted
}

#[tokio::test]
async fn a_request_gives_the_same_job_or_the_same_complaint_by_sql_as_by_core() {
    let cases = Scaled { quick: 100, full: 400 }.get();
    let accepted = compare(RetrySettings::default(), 1, cases).await;
    let some = cases / 4..cases * 3 / 4;
    assert!(some.contains(&accepted), "{accepted} of {cases} were accepted: both kinds are to be seen");
}

#[tokio::test]
async fn a_job_that_is_enqueued_by_sql_gets_the_coordinators_defaults() {
    let (initial_delay, max_delay) = (Duration::from_millis(1_500), Duration::from_secs(86_400));
    let defaults = RetrySettings { max_retries: 7, initial_delay, multiplier: 1.5, max_delay, jitter: Jitter::None };
    let cases = Scaled { quick: 60, full: 200 }.get();
    let accepted = compare(defaults, 2, cases).await;
    assert!(accepted > cases / 4, "{accepted} of {cases} were accepted");
}

#[tokio::test]
async fn functions_are_installed_again_only_if_they_differ() {
    let url = SharedPostgres::get().create_database();
    let client = connect(&url).await;
    let written = async || -> Vec<String> {
        let sql = "select p.xmin::text || p.oid::regprocedure from pg_proc p where p.proname like 'convoke\\_%' \
             and p.proname <> 'convoke_mine' order by 1";
        client.query(sql, &[]).await.expect("listed").iter().map(|row| row.get(0)).collect()
    };
    let connect_with = async |max_retries| {
        let defaults = RetrySettings { max_retries, ..RetrySettings::default() };
        drop(PostgresStore::connect_with(&url, &defaults).await.expect("connects"));
    };
    connect_with(5).await;
    let first = written().await;
    connect_with(5).await;
    assert_eq!(written().await, first, "an unchanged start writes nothing");
    let old = "create function convoke_enqueue(old int) returns int language sql as 'select 1'";
    client.batch_execute(old).await.expect("created");
    let own = "create function convoke_mine() returns int language sql as 'select 1'";
    client.batch_execute(own).await.expect("created");
    connect_with(6).await;
    let second = written().await;
    assert_eq!(second.len(), first.len(), "a signature of another version is dropped");
    assert!(second.iter().all(|function| !first.contains(function)), "all are written anew");
    client.query_one("select convoke_mine()", &[]).await.expect("an application's own function stays");
    let id: Uuid = client.query_one("select convoke_enqueue('t')", &[]).await.expect("enqueued").get(0);
    let document = "select document from convoke_jobs where id = $1";
    let document: String = client.query_one(document, &[&id]).await.expect("there").get(0);
    assert_eq!(document, r#"{"v":1,"type":"t","maxRetries":6}"#);
}
