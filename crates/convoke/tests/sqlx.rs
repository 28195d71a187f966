//! A job in a transaction of `sqlx`, on a real PostgreSQL.

use convoke::connect::{Addresses, backends};
use convoke::transaction::{JobSpec, JobType, Statement, spec};
use convoke::{Job, JobId, Status};
use convoke_core::ports::Store;
use convoke_testkit::process::SharedPostgres;
use serde::{Deserialize, Serialize};
use sqlx::postgres::PgPoolOptions;
use sqlx::{Pool, Postgres, query, query_scalar};

#[derive(Serialize, Deserialize)]
struct ConfirmOrder {
    order: u64,
}

impl Job for ConfirmOrder {
    const TYPE: &'static str = "order.confirm";
    type Output = ();
}

async fn fresh() -> (std::sync::Arc<dyn Store>, Pool<Postgres>) {
    let url = SharedPostgres::get().create_database();
    let store = backends(Addresses { store: &url, ..Addresses::default() }).await.expect("it connects").store;
    let pool = PgPoolOptions::new().max_connections(2).connect(&url).await.expect("it connects");
    query("create table orders (id bigint)").execute(&pool).await.expect("created");
    (store, pool)
}

async fn status(store: &dyn Store, id: JobId) -> Option<Status> {
    store.get(&[id]).await.expect("get").remove(0).map(|job| job.status)
}

#[tokio::test]
async fn a_job_exists_if_and_only_if_the_transaction_of_sqlx_commits() {
    let (store, pool) = fresh().await;
    let mut left = Vec::new();
    for commits in [false, true] {
        let mut transaction = pool.begin().await.expect("begins");
        query("insert into orders (id) values ($1)").bind(17).execute(&mut *transaction).await.expect("inserted");
        // Beyond the integers that a double has: kept as it is.
        let order = ConfirmOrder { order: (1 << 53) + 1 };
        let keyed = spec(&order).expect("a job").with(|it| it.unique_key = Some("order".into()));
        let enqueue = Statement::new(&[spec(&order).expect("a job"), keyed.clone(), keyed]).expect("jobs");
        let sql = query_scalar(enqueue.sql()).bind(enqueue.parameter());
        let rows: Vec<String> = sql.fetch_all(&mut *transaction).await.expect("enqueued");
        let jobs = enqueue.enqueued(rows).expect("ids");
        assert_eq!(jobs.iter().map(|job| job.created).collect::<Vec<_>>(), [true, true, false]);
        assert_eq!(jobs[1].id, jobs[2].id, "by its key");
        assert_eq!(status(&*store, jobs[0].id).await, None, "not yet");
        match commits {
            true => transaction.commit().await.expect("commits"),
            false => transaction.rollback().await.expect("rolls back"),
        }
        for job in &jobs[..2] {
            assert_eq!(status(&*store, job.id).await, commits.then_some(Status::Pending));
        }
        left = jobs;
    }
    let args = store.get(&[left[0].id]).await.expect("get").remove(0).expect("there").definition.args;
    assert_eq!(args.to::<ConfirmOrder>().expect("an order").order, (1 << 53) + 1);
}

#[test]
fn jobs_that_no_coordinator_would_take_are_rejected_before_the_statement() {
    let named = |name: &str| JobSpec::new(JobType::new(name).expect("a name"));
    let both = JobSpec { run_at: Some("2030-01-01T00:00:00Z".parse().expect("a time")), ..named("b") };
    let both = JobSpec { delay: Some(std::time::Duration::from_secs(1)), ..both };
    let error = Statement::new(&[named("a"), both]).expect_err("both times").to_string();
    assert!(error.starts_with("jobs[1]."), "{error}");
    let error = Statement::new(&vec![named("a"); 10_001]).expect_err("too many").to_string();
    assert_eq!(error, "jobs: expected at most 10000 jobs, got 10001");
    let one = Statement::new(&[named("a")]).expect("a job");
    let error = one.enqueued(Vec::<String>::new()).expect_err("no rows").to_string();
    assert_eq!(error, "expected 1 rows, got 0");
}
