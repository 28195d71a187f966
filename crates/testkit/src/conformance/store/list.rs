//! Lists: newest first, filtered, page by page.

use convoke_core::jobs::{Job, NewJob, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, LOG_LINE_BYTES_MAX, LOG_PAGE_BYTES_MAX, PAGE_BYTES_MAX, RESULT_BYTES_MAX};
use convoke_core::ports::Store;
use convoke_core::ports::store::JobQuery;
use convoke_core::{JobId, JobType};

use super::stage::*;

fn ids(jobs: &[Job]) -> Vec<JobId> {
    jobs.iter().map(|job| job.id).collect()
}

fn query(limit: usize) -> JobQuery {
    JobQuery { limit, ..JobQuery::default() }
}

pub async fn the_newest_comes_first(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1), job(2)]).await;
    stage.enqueue([job(3)]).await;
    assert_eq!(ids(&stage.list(query(10)).await), [job_id(3), job_id(2), job_id(1)]);
    let page = store.list(query(2)).await.expect("list");
    assert!(page.jobs.len() <= 2, "a page is no longer than asked");
}

pub async fn lists_find_types_by_their_prefix(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let types = ["email.send", "email.receive", "emailed", "email", "web", "email.é", "email.%"];
    let jobs = types.iter().zip(1..).map(|(name, n)| {
        job(n).with(|job| {
            job.job_type = JobType::new(name).expect("a name");
            job.queue = queue(if n % 2 == 0 { "even" } else { "odd" });
        })
    });
    stage.enqueue(jobs).await;
    let found = async |prefix: &str, more: JobQuery| {
        ids(&stage.list(JobQuery { type_prefix: Some(prefix.into()), limit: 1, ..more }).await)
    };
    assert_eq!(found("email.", query(0)).await, [7, 6, 2, 1].map(job_id));
    assert_eq!(found("email", query(0)).await, [7, 6, 4, 3, 2, 1].map(job_id));
    assert_eq!(found("email.%", query(0)).await, [job_id(7)], "no character stands for others");
    assert_eq!(found("nothing", query(0)).await, []);
    let even = JobQuery { queue: Some(queue("even")), ..query(0) };
    assert_eq!(found("email.", even.clone()).await, [6, 2].map(job_id));
    store.cancel(&[job_id(2), job_id(3)], None, at(5)).await.expect("cancel");
    let cancelled = JobQuery { statuses: vec![Status::Cancelled], ..query(0) };
    assert_eq!(found("email.", cancelled.clone()).await, [job_id(2)]);
    assert_eq!(found("email", cancelled).await, [3, 2].map(job_id));
    let pending = JobQuery { statuses: vec![Status::Pending], ..even };
    assert_eq!(found("email.", pending).await, [job_id(6)]);
    let exact = JobQuery { job_type: JobType::new("email").ok(), ..query(0) };
    assert_eq!(found("email.", exact).await, [], "both must hold");
    // More types than ranges are read side by side.
    let many = (100..200).map(|n| job(n).with(|job| job.job_type = JobType::new(format!("many.{n}")).expect("a name")));
    stage.enqueue(many).await;
    assert_eq!(found("many.", query(0)).await.len(), 100);
}

pub async fn lists_find_jobs_by_when_they_were_created(store: &dyn Store) {
    let stage = Stage::new(store).await;
    // A job a minute, except for one that was stored a moment late.
    for n in 1..=60 {
        let created_at = if n == 30 { at(29 * 60 - 20) } else { at(i64::try_from(n).expect("small") * 60) };
        stage.enqueue([NewJob { created_at, ..job(n) }]).await;
    }
    let found = async |from: Option<i64>, until: Option<i64>, more: JobQuery| {
        let (created_from, created_until) = (from.map(|minute| at(minute * 60)), until.map(|minute| at(minute * 60)));
        ids(&stage.list(JobQuery { created_from, created_until, limit: 7, ..more }).await)
    };
    let range = |numbers: std::ops::RangeInclusive<u64>| numbers.rev().map(job_id).collect::<Vec<_>>();
    assert_eq!(found(Some(50), None, query(0)).await, range(50..=60));
    assert_eq!(found(None, Some(5), query(0)).await, range(1..=4));
    assert_eq!(found(Some(10), Some(13), query(0)).await, range(10..=12));
    assert_eq!(found(Some(28), Some(29), query(0)).await, [30, 28].map(job_id), "also the one that was stored late");
    assert_eq!(found(Some(99), None, query(0)).await, []);
    assert_eq!(found(None, Some(-9), query(0)).await, []);
    assert_eq!(found(Some(20), Some(10), query(0)).await, []);
    assert_eq!(found(Some(-99), Some(99), query(0)).await, range(1..=60));
    store.cancel(&[5, 40, 55].map(job_id), None, at(9_999)).await.expect("cancel");
    let cancelled = JobQuery { statuses: vec![Status::Cancelled], ..query(0) };
    assert_eq!(found(Some(30), Some(50), cancelled.clone()).await, [job_id(40)]);
    assert_eq!(found(Some(30), None, cancelled).await, [55, 40].map(job_id));
    let pending = JobQuery { statuses: vec![Status::Pending], ..query(0) };
    assert_eq!(found(Some(54), Some(57), pending).await, [56, 54].map(job_id));
    let typed = JobQuery { type_prefix: Some("t".into()), ..query(0) };
    assert_eq!(found(Some(58), None, typed).await, range(58..=60));
}

pub async fn lists_filter_by_each_field_and_all_together(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let u = JobType::new("u").expect("a name");
    stage
        .enqueue([
            job(1),
            job(2).with(|job| job.queue = queue("b")),
            job(3).with(|job| job.job_type = u.clone()),
            job(4).with(|job| job.correlation_id = Some("c".into())),
            NewJob { run_at: Some(at(99)), ..job(5) },
            job(6).with(|job| {
                job.queue = queue("b");
                job.job_type = u.clone();
                job.correlation_id = Some("c".into());
            }),
        ])
        .await;
    let found = async |query: JobQuery| ids(&stage.list(JobQuery { limit: 2, ..query }).await);
    let by_queue = JobQuery { queue: Some(queue("b")), ..query(0) };
    assert_eq!(found(by_queue.clone()).await, [job_id(6), job_id(2)]);
    let by_type = JobQuery { job_type: Some(u.clone()), ..query(0) };
    assert_eq!(found(by_type).await, [job_id(6), job_id(3)]);
    let by_correlation = JobQuery { correlation_id: Some("c".into()), ..query(0) };
    assert_eq!(found(by_correlation).await, [job_id(6), job_id(4)]);
    let by_status = JobQuery { statuses: vec![Status::Scheduled], ..query(0) };
    assert_eq!(found(by_status).await, [job_id(5)]);
    let all = JobQuery {
        job_type: Some(u),
        correlation_id: Some("c".into()),
        statuses: vec![Status::Pending, Status::Running],
        ..by_queue
    };
    assert_eq!(found(all.clone()).await, [job_id(6)]);
    assert!(found(JobQuery { correlation_id: Some("d".into()), ..all.clone() }).await.is_empty());

    let tagged = |n, tags: &[&str]| job(n).with(|job| job.tags = tags.iter().map(|tag| (*tag).into()).collect());
    let both = tagged(9, &["b", "a"]).with(|job| job.correlation_id = Some("c".into()));
    stage.enqueue([tagged(7, &["a"]), tagged(8, &["a b", "A"]), both]).await;
    let by_tag = |tag: &str| JobQuery { tag: Some(tag.into()), limit: 10, ..JobQuery::default() };
    assert_eq!(found(by_tag("a")).await, [job_id(9), job_id(7)], "the newest first");
    assert_eq!(found(by_tag("a b")).await, [job_id(8)]);
    assert!(found(by_tag("c")).await.is_empty(), "a correlation id is no tag");
    assert!(found(by_tag("a\0")).await.is_empty());
    assert_eq!(found(JobQuery { correlation_id: Some("c".into()), ..by_tag("b") }).await, [job_id(9)]);
    assert!(found(JobQuery { statuses: vec![Status::Failed], ..by_tag("a") }).await.is_empty());
    assert!(found(JobQuery { queue: Some(queue("nowhere")), ..all.clone() }).await.is_empty());
    assert!(found(JobQuery { job_type: Some(JobType::new("no").expect("a name")), ..all }).await.is_empty());
}

pub async fn a_page_of_jobs_ends_when_its_bytes_are_used_up(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let large = |n: u64| job(n).with(|job| job.args = large_args(ARGS_BYTES_MAX));
    stage.enqueue((1..=10).map(large)).await;
    let runs = stage.dispatch("q", 4, at(1)).await;
    for run in &runs {
        let result = Some(large_args(RESULT_BYTES_MAX));
        stage.end(run, at(2), convoke_core::jobs::Outcome::Completed { result }).await;
    }
    for statuses in [vec![], vec![Status::Pending, Status::Completed], vec![Status::Completed], vec![Status::Pending]] {
        let query = JobQuery { statuses: statuses.clone(), ..query(100) };
        let (mut found, mut cursor, mut pages) = (Vec::new(), None, 0);
        loop {
            let page = store.list(JobQuery { cursor, ..query.clone() }).await.expect("list");
            let bytes: usize = page.jobs.iter().map(Job::payload_bytes).sum();
            assert!(bytes <= PAGE_BYTES_MAX, "{bytes} bytes in a page of {statuses:?}");
            found.extend(page.jobs.iter().map(|job| job.id));
            pages += usize::from(!page.jobs.is_empty());
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let all = |n: &u64| match statuses.as_slice() {
            [Status::Completed] => *n <= 4,
            [Status::Pending] => *n > 4,
            _ => true,
        };
        assert_eq!(found, (1..=10).rev().filter(all).map(job_id).collect::<Vec<_>>(), "of {statuses:?}");
        let expected = if statuses.len() == 1 { 1 } else { 2 };
        assert_eq!(pages, expected, "of {statuses:?}");
    }
}

pub async fn a_page_of_log_lines_ends_when_its_bytes_are_used_up(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    let line = "x".repeat(LOG_LINE_BYTES_MAX);
    let fitting = LOG_PAGE_BYTES_MAX / LOG_LINE_BYTES_MAX;
    let logs = (0..fitting + 2).map(|_| log(&line)).collect();
    stage.apply(convoke_core::jobs::RunReport { logs, ..report(&run) }).await;
    let first = store.logs(job_id(1), 0, 100).await.expect("logs");
    assert_eq!(first.len(), fitting);
    let rest = store.logs(job_id(1), first[fitting - 1].seq, 100).await.expect("logs");
    assert_eq!(rest.iter().map(|line| line.seq).collect::<Vec<_>>(), [fitting as u64 + 1, fitting as u64 + 2]);
}

pub async fn a_history_is_read_page_by_page(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1).with(|job| job.max_retries = 9)]).await;
    for second in 1..=4 {
        let run = stage.dispatch_one(at(second * 1_000)).await;
        let lost = convoke_core::jobs::Outcome::Lost { error: format!("lost {second}") };
        stage.end(&run, at(second * 1_000), lost).await;
    }
    stage.dispatch_one(at(9_000)).await;
    let page = async |after, limit| {
        let page = store.history(job_id(1), after, limit).await.expect("history");
        (page.runs.iter().map(|run| run.attempt).collect::<Vec<_>>(), page.next_after)
    };
    assert_eq!(page(0, 100).await, (vec![1, 2, 3, 4, 5], None));
    assert_eq!(page(0, 2).await, (vec![1, 2], Some(2)));
    assert_eq!(page(2, 2).await, (vec![3, 4], Some(4)));
    assert_eq!(page(4, 2).await, (vec![5], None));
    assert_eq!(page(3, 2).await, (vec![4, 5], None));
    assert_eq!(page(5, 2).await, (vec![], None));
    assert_eq!(page(u64::MAX, 2).await, (vec![], None));
}

pub async fn lists_find_jobs_in_every_state(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=8).map(job)).await;
    stage.enqueue([NewJob { run_at: Some(at(99)), ..job(9) }]).await;
    let runs = stage.dispatch("q", 6, at(1)).await;
    stage.start(&runs[1], "w", at(2)).await;
    stage.end(&runs[2], at(2), completed()).await;
    stage.end(&runs[3], at(2), failed_for_good("x")).await;
    store.cancel(&[runs[4].job_id], None, at(2)).await.expect("cancel");
    let timed_out = convoke_core::jobs::Outcome::TimedOut { error: "late".into() };
    stage.end(&runs[5], at(2), timed_out).await;
    let mut seen = 0;
    for (status, expected) in [
        (Status::Pending, vec![8, 7]),
        (Status::Scheduled, vec![9, 6]),
        (Status::Dispatched, vec![1]),
        (Status::Running, vec![2]),
        (Status::Completed, vec![3]),
        (Status::Failed, vec![4]),
        (Status::Cancelled, vec![5]),
        (Status::TimedOut, vec![]),
    ] {
        let jobs = stage.list(JobQuery { statuses: vec![status], ..query(5) }).await;
        let expected: Vec<_> = expected.into_iter().map(job_id).collect();
        assert_eq!(ids(&jobs), expected, "{}", status.as_str());
        assert!(jobs.iter().all(|job| job.status == status));
        seen += jobs.len();
    }
    assert_eq!(seen, 9);
}

pub async fn pages_have_neither_gaps_nor_doubles_while_jobs_arrive(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let even = |n: u64| if n.is_multiple_of(2) { queue("even") } else { queue("q") };
    stage.enqueue((1..=60).map(|n| job(n).with(|job| job.queue = even(n)))).await;
    for filter in [None, Some(queue("even"))] {
        let (mut seen, mut cursor, mut next) = (Vec::new(), None, stage.all().await.len() as u64 + 1);
        loop {
            let asked = JobQuery { queue: filter.clone(), cursor, ..query(7) };
            let page = store.list(asked).await.expect("list");
            seen.extend(ids(&page.jobs));
            stage.enqueue([job(next).with(|job| job.queue = even(next))]).await;
            next += 1;
            cursor = page.next_cursor;
            if cursor.is_none() {
                break;
            }
        }
        let first = seen.first().copied().expect("jobs were there");
        let expected: Vec<_> = stage.list(JobQuery { queue: filter, ..query(100) }).await;
        let expected: Vec<_> = ids(&expected).into_iter().skip_while(|id| *id != first).collect();
        assert_eq!(seen, expected);
    }
}

pub async fn a_job_that_changes_between_pages_keeps_its_place(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=6).map(job)).await;
    let page = store.list(query(3)).await.expect("list");
    assert_eq!(ids(&page.jobs), [job_id(6), job_id(5), job_id(4)]);
    for run in stage.dispatch("q", 6, at(1)).await {
        stage.end(&run, at(2), completed()).await;
    }
    let rest = stage.list(JobQuery { cursor: page.next_cursor, ..query(3) }).await;
    assert_eq!(ids(&rest), [job_id(3), job_id(2), job_id(1)]);
}

pub async fn a_cursor_that_is_none_of_ours_is_refused(store: &dyn Store) {
    for cursor in ["nonsense", "", "💥", "-1", "99999999999999999999999999"] {
        assert_invalid(store.list(JobQuery { cursor: Some(cursor.into()), ..query(3) }).await);
    }
}

/// Counts all jobs of a query, `limit` at a time.
async fn counted(store: &dyn Store, mut query: JobQuery) -> u64 {
    let mut jobs = 0;
    loop {
        let part = store.count(query.clone()).await.expect("count");
        assert!(part.jobs <= query.limit as u64, "{} of {query:?}", part.jobs);
        jobs += part.jobs;
        query.cursor = part.next_cursor;
        if query.cursor.is_none() {
            return jobs;
        }
    }
}

/// A count finds what a list finds, in parts of any size.
pub async fn a_count_is_the_number_of_the_jobs_that_a_list_returns(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let of_parity = |n: u64| JobType::new(if n.is_multiple_of(2) { "even" } else { "odd" }).expect("a name");
    stage.enqueue((1..=7).map(|n| job(n).with(|job| job.job_type = of_parity(n)))).await;
    store.cancel(&[job_id(1), job_id(2)], None, at(5)).await.expect("cancel");
    let of_type = |name: &str| JobQuery { job_type: Some(JobType::new(name).expect("a name")), ..query(1) };
    let ended = Status::ALL.into_iter().filter(|status| !status.is_live()).collect::<Vec<_>>();
    let live = Status::ALL.into_iter().filter(|status| status.is_live()).collect::<Vec<_>>();
    for (query, expected) in [
        (query(1), 7),
        (of_type("odd"), 4),
        (of_type("none"), 0),
        (JobQuery { type_prefix: Some("o".into()), ..query(1) }, 4),
        (JobQuery { statuses: ended.clone(), ..query(1) }, 2),
        (JobQuery { statuses: ended, ..of_type("odd") }, 1),
        (JobQuery { statuses: live.clone(), ..of_type("odd") }, 3),
        (JobQuery { statuses: vec![Status::Pending], ..query(1) }, 5),
        (JobQuery { statuses: live, type_prefix: Some("e".into()), ..query(1) }, 2),
        (JobQuery { created_from: Some(at(0)), ..query(1) }, 7),
        (JobQuery { created_until: Some(at(0)), ..query(1) }, 0),
    ] {
        for limit in [1, 3, 100] {
            let query = JobQuery { limit, ..query.clone() };
            assert_eq!(counted(store, query.clone()).await, expected, "{query:?}");
        }
    }
    assert_invalid(store.count(JobQuery { cursor: Some("7".into()), ..query(3) }).await);
}

pub async fn an_empty_store_has_one_empty_page(store: &dyn Store) {
    let page = store.list(query(3)).await.expect("list");
    assert!(page.jobs.is_empty() && page.next_cursor.is_none());
}
