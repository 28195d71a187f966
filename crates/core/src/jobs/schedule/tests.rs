use proptest::prelude::*;

use super::*;
use crate::error::InvalidKind;
use crate::jobs::Priority;
use crate::jobs::Status;
use crate::limits::{ARGS_BYTES_MAX, RETRIES_MAX};

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn put(body: &str, now: Timestamp) -> Result<Schedule, crate::Invalid> {
    let spec: ScheduleSpec = serde_json::from_str(body).expect("a readable body");
    spec.into_schedule(ScheduleName::new("s").expect("a name"), now)
}

fn cron(expression: &str, tz: &str, missed: &str, now: Timestamp) -> Schedule {
    put(&format!(r#"{{"type":"t","cron":"{expression}","tz":"{tz}","missed":"{missed}"}}"#), now).expect("valid")
}

fn every(interval: &str, missed: &str, now: Timestamp) -> Schedule {
    put(&format!(r#"{{"type":"t","every":"{interval}","missed":"{missed}"}}"#), now).expect("valid")
}

fn seconds(from: Timestamp, seconds: i64) -> Timestamp {
    Timestamp::from_millisecond(from.as_millisecond() + seconds * 1_000).expect("in range")
}

const NOON: &str = "2026-06-15T12:00:00Z";

#[test]
fn a_silent_request_gets_the_defaults() {
    let schedule = put(r#"{"type":"report","cron":"0 3 * * *"}"#, at(NOON)).expect("valid");
    assert_eq!(
        serde_json::to_string(&schedule).expect("serialises"),
        concat!(
            r#"{"name":"s","type":"report","queue":"default","priority":"normal","cron":"0 3 * * *","every":null,"tz":"UTC","#,
            r#""day":"or","missed":"latest","overlap":"skip","paused":false,"createdAt":"2026-06-15T12:00:00Z","#,
            r#""nextRunAt":"2026-06-16T03:00:00Z","lastRunAt":null,"args":null,"maxRetries":null,"timeout":null}"#
        )
    );
}

#[test]
fn a_full_request_is_kept() {
    let body = concat!(
        r#"{"type":"report","queue":"q","args":{"a":1},"cron":"@daily","tz":"europe/berlin","missed":"all","overlap":"allow","#,
        r#""paused":true,"priority":"high","maxRetries":7,"timeout":"30s"}"#
    );
    let schedule = put(body, at(NOON)).expect("valid");
    assert_eq!((schedule.tz.as_deref(), schedule.missed), (Some("Europe/Berlin"), Missed::All));
    assert_eq!((schedule.overlap, schedule.template.priority), (Overlap::Allow, Some(Priority::High)));
    assert_eq!((schedule.template.max_retries, schedule.template.timeout), (Some(7), Some(Duration::from_secs(30))));
    assert_eq!((schedule.paused, schedule.next_run_at), (true, None));
    let (queue, args) = (schedule.template.queue, schedule.template.args);
    assert_eq!((queue.expect("a queue").as_str(), args.expect("arguments").as_str()), ("q", r#"{"a":1}"#));
}

#[test]
fn what_makes_no_schedule_is_refused_by_its_field() {
    use InvalidKind::{Argument, TooLarge, Unprocessable};
    let huge = format!(r#""every":"1s","args":"{}""#, "x".repeat(ARGS_BYTES_MAX));
    let deep = format!(r#""every":"1s","args":{}{}"#, "[".repeat(100), "]".repeat(100));
    let stubborn = format!(r#""every":"1s","maxRetries":{}"#, RETRIES_MAX + 1);
    let cases = [
        (r#""cron":"@daily","every":"1s""#, "every", Unprocessable),
        (r#""paused":false"#, "cron", Unprocessable),
        (r#""every":"1s","tz":"UTC""#, "tz", Unprocessable),
        (r#""every":"1s","day":"and""#, "day", Unprocessable),
        (r#""cron":"0 0 31 2 *""#, "cron", Unprocessable),
        (r#""cron":"0 0 31 2,4 FRI","day":"and""#, "cron", Unprocessable),
        (r#""cron":"* * 30 2 *""#, "cron", Unprocessable),
        (r#""cron":"nonsense""#, "cron", Argument),
        (r#""cron":"@daily","tz":"Mars/Olympus""#, "tz", Argument),
        (r#""every":"99ms""#, "every", Argument),
        (r#""every":"0s""#, "every", Argument),
        (r#""every":"1s","timeout":"0s""#, "timeout", Argument),
        (&stubborn, "maxRetries", Argument),
        (&deep, "args", Argument),
        (&huge, "args", TooLarge),
    ];
    for (fields, field, kind) in cases {
        let refused = put(&format!(r#"{{"type":"t",{fields}}}"#), at(NOON)).expect_err(field);
        assert_eq!((refused.field.as_str(), refused.kind), (field, kind), "{refused}");
        assert!(refused.message.contains("expected"), "{refused}");
    }
}

#[test]
fn what_is_no_request_is_refused_by_its_name() {
    for (body, named) in [
        (r#"{"cron":"@daily"}"#, "type"),
        (r#"{"type":"t","cron":"@daily","timezone":"UTC"}"#, "timezone"),
        (r#"{"type":"t","every":5}"#, "a duration"),
        (r#"{"type":"t","every":"-5s"}"#, "a duration"),
        (r#"{"type":"t","every":"1s","missed":"none"}"#, "skip"),
        (r#"{"type":"t","cron":"@daily","day":"xor"}"#, "and"),
        (r#"{"type":"t","every":"1s","maxRetries":-1}"#, "-1"),
        (r#"{"type":"","every":"1s"}"#, "type"),
    ] {
        let error = serde_json::from_str::<ScheduleSpec>(body).expect_err(body).to_string();
        assert!(error.contains(named), "{error}");
    }
}

#[test]
fn two_restricted_day_fields_are_warned_of_unless_the_rule_is_given() {
    let warnings = |fields: &str| {
        let spec: ScheduleSpec = serde_json::from_str(&format!(r#"{{"type":"t",{fields}}}"#)).expect("a request");
        spec.warnings()
    };
    let warned = warnings(r#""cron":"0 0 13 * FRI""#);
    assert_eq!(warned.len(), 1);
    assert!(warned[0].contains("13 * FRI") && warned[0].contains("\"and\""), "{warned:?}");
    for silent in [r#""cron":"0 0 13 * FRI","day":"or""#, r#""cron":"0 0 13 * *""#, r#""every":"1s""#, r#""cron":"x""#]
    {
        assert!(warnings(silent).is_empty(), "{silent}");
    }
    let both = put(r#"{"type":"t","cron":"0 0 13 * FRI","day":"and"}"#, at(NOON)).expect("a schedule");
    assert_eq!(both.next_run_at, Some(at("2026-11-13T00:00:00Z")));
}

#[test]
fn an_interval_counts_from_its_creation() {
    let start = at("2026-06-15T12:00:00.000123456Z");
    let schedule = every("1m30s", "all", start);
    let anchor = at("2026-06-15T12:00:00.000123Z");
    assert_eq!((schedule.created_at, schedule.next_run_at), (anchor, Some(anchor + Duration::from_secs(90))));
    for (since, next) in [(-500, 90), (0, 90), (89, 90), (90, 180), (91, 180), (90 * 1_000_000, 90 * 1_000_001)] {
        let moment = Timestamp::from_microsecond(anchor.as_microsecond() + since * 1_000_000).expect("in range");
        let expected = Timestamp::from_microsecond(anchor.as_microsecond() + next * 1_000_000).expect("in range");
        assert_eq!(schedule.next_after(moment), Some(expected), "{since} s after its creation");
    }
    assert_eq!(schedule.next_after(Timestamp::MAX), None);
}

#[test]
fn nothing_is_planned_before_its_time_or_while_paused() {
    let mut schedule = every("10s", "all", at(NOON));
    let early = plan(&schedule, seconds(at(NOON), 9));
    assert_eq!(early, Plan { ticks: vec![], next_run_at: Some(seconds(at(NOON), 10)), dropped: 0 });
    schedule.pause();
    assert_eq!(plan(&schedule, seconds(at(NOON), 99)), Plan { ticks: vec![], next_run_at: None, dropped: 0 });
}

#[test]
fn what_passed_while_paused_was_not_missed() {
    let mut schedule = every("10s", "all", at(NOON));
    schedule.pause();
    schedule.resume(seconds(at(NOON), 95));
    assert_eq!(plan(&schedule, seconds(at(NOON), 100)).ticks, [seconds(at(NOON), 100)]);
}

#[test]
fn a_tick_on_time_is_made_by_every_policy() {
    let tick = seconds(at(NOON), 60);
    for missed in ["skip", "latest", "all"] {
        for schedule in [cron("* * * * *", "UTC", missed, at(NOON)), every("1m", missed, at(NOON))] {
            let expected = Plan { ticks: vec![tick], next_run_at: Some(seconds(tick, 60)), dropped: 0 };
            assert_eq!(plan(&schedule, tick), expected, "{missed}");
            assert_eq!(plan(&schedule, seconds(tick, 1)), expected, "{missed}");
        }
    }
}

#[test]
fn missed_ticks_follow_the_policy() {
    // No leader for five minutes, until ten seconds after the fifth tick.
    let now = seconds(at(NOON), 310);
    let next_run_at = Some(seconds(at(NOON), 360));
    let newest = seconds(at(NOON), 300);
    let all: Vec<Timestamp> = (1..=5).map(|minute| seconds(at(NOON), minute * 60)).collect();
    let made = |missed| [cron("* * * * *", "UTC", missed, at(NOON)), every("1m", missed, at(NOON))];
    for schedule in made("skip") {
        assert_eq!(plan(&schedule, now), Plan { ticks: vec![], next_run_at, dropped: 5 });
        // The newest is on time, the others were missed.
        assert_eq!(plan(&schedule, newest), Plan { ticks: vec![newest], next_run_at, dropped: 4 });
    }
    for schedule in made("latest") {
        assert_eq!(plan(&schedule, now), Plan { ticks: vec![newest], next_run_at, dropped: 4 });
    }
    for schedule in made("all") {
        assert_eq!(plan(&schedule, now), Plan { ticks: all.clone(), next_run_at, dropped: 0 });
    }
}

#[test]
fn all_is_bounded_to_the_newest() {
    let now = seconds(at(NOON), 60 * 2_500);
    for schedule in [cron("* * * * *", "UTC", "all", at(NOON)), every("1m", "all", at(NOON))] {
        let plan = plan(&schedule, now);
        assert_eq!((plan.ticks.len(), plan.dropped), (MISSED_TICKS_MAX, 1_500));
        assert_eq!((plan.ticks[0], plan.ticks[MISSED_TICKS_MAX - 1]), (seconds(at(NOON), 60 * 1_501), now));
    }
}

#[test]
fn a_year_of_missed_seconds_does_not_take_a_year_to_plan() {
    let now = at("2027-06-15T12:00:00.5Z");
    for (missed, kept) in [("latest", 1), ("all", MISSED_TICKS_MAX)] {
        for schedule in [
            cron("* * * * * *", "Europe/Berlin", missed, at(NOON)),
            cron("* * 0-22 * * *", "Europe/Berlin", missed, at(NOON)),
            every("100ms", missed, at(NOON)),
        ] {
            let plan = plan(&schedule, now);
            assert_eq!(plan.ticks.len(), kept);
            assert!(plan.ticks.windows(2).all(|pair| schedule.next_after(pair[0]) == Some(pair[1])));
            assert_eq!(schedule.next_after(plan.ticks[kept - 1]), plan.next_run_at);
            assert!(plan.dropped >= COUNTED_TICKS_MAX);
        }
    }
    assert_eq!(plan(&every("100ms", "latest", at(NOON)), now).dropped, 365 * 86_400 * 10 + 5 - 1);
}

#[test]
fn just_beyond_what_is_counted_no_tick_is_counted_twice() {
    for beyond in [0, 1, 999, 1_000, 1_001] {
        let count = COUNTED_TICKS_MAX as i64 + beyond;
        let plan = plan(&cron("* * * * * *", "UTC", "all", at(NOON)), seconds(at(NOON), count));
        assert_eq!(plan.ticks.len(), MISSED_TICKS_MAX);
        assert_eq!(plan.ticks[0], seconds(at(NOON), count - MISSED_TICKS_MAX as i64 + 1));
        // Ticks between the counted and the newest are not counted.
        assert_eq!(plan.dropped + MISSED_TICKS_MAX as u64, COUNTED_TICKS_MAX + (beyond as u64).min(1_000));
    }
}

#[test]
fn a_schedule_that_cannot_be_read_plans_nothing() {
    let mut schedule = every("10s", "all", at(NOON));
    schedule.every = None;
    assert_eq!(plan(&schedule, seconds(at(NOON), 60)).ticks, []);
    schedule.every = Some(Duration::ZERO);
    assert_eq!(plan(&schedule, seconds(at(NOON), 60)).ticks, []);
    assert_eq!(schedule.next_after(at(NOON)), None);
}

#[test]
fn a_tick_becomes_a_job_that_is_due() {
    let body = r#"{"type":"report","queue":"q","args":[1],"every":"10s","priority":"low","timeout":"1m"}"#;
    let schedule = put(body, at(NOON)).expect("valid");
    let (id, tick) = (JobId(uuid::Uuid::from_u128(7)), seconds(at(NOON), 10));
    let defaults = RetrySettings { max_retries: 9, ..RetrySettings::default() };
    for now in [tick, seconds(tick, 5), seconds(tick, -1)] {
        let job = job_for_tick(&schedule, id, tick, now, &defaults);
        assert_eq!((job.id, job.status(), job.due_at()), (id, Status::Pending, now.max(tick)));
        assert_eq!(
            (job.definition.job_type.as_str(), job.definition.queue.as_str(), job.definition.args.as_str()),
            ("report", "q", "[1]")
        );
        assert_eq!(
            (job.definition.priority, job.definition.max_retries, job.definition.timeout),
            (Priority::Low, 9, Some(Duration::from_secs(60)))
        );
        let stored = job.into_stored();
        assert_eq!((stored.schedule, stored.scheduled_at), (Some(schedule.name.clone()), Some(tick)));
    }
    let own = schedule.with(|job| job.max_retries = Some(0));
    assert_eq!(job_for_tick(&own, id, tick, tick, &defaults).definition.max_retries, 0);
}

const YEAR: (&str, &str) = ("2026-01-01T00:00:00Z", "2027-01-01T00:00:00Z");

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// A year has the same ticks, each once, however often the leader changes.
    #[test]
    fn a_year_across_restarts_has_each_tick_once(
        expression in prop::sample::select(vec!["30 2 * * *", "*/30 1-3 * * *", "0 */6 * * *", "15 * * * *"]),
        tz in prop::sample::select(vec!["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]),
        restarts in prop::collection::btree_set(0..365 * 86_400i64, 1..100),
    ) {
        let (start, end) = (at(YEAR.0), at(YEAR.1));
        let mut schedule = cron(expression, tz, "all", start);
        let unbroken: Vec<Timestamp> = std::iter::successors(schedule.next_after(start), |tick| schedule.next_after(*tick))
            .take_while(|tick| *tick <= end)
            .collect();
        let (mut made, mut dropped) = (Vec::new(), 0);
        for now in restarts.into_iter().map(|second| seconds(start, second)).chain([end]) {
            // A new leader knows only the stored schedule.
            let stored = serde_json::to_string(&schedule).expect("serialises");
            schedule = serde_json::from_str(&stored).expect("reads");
            let plan = plan(&schedule, now);
            // Ticks of months without a leader may exceed the bound; these are dropped and counted.
            let due = unbroken.iter().filter(|tick| Some(**tick) >= schedule.next_run_at && **tick <= now).count();
            prop_assert_eq!(plan.ticks.len() as u64 + plan.dropped, due as u64);
            prop_assert!(plan.dropped == 0 || plan.ticks.len() == MISSED_TICKS_MAX);
            made.extend(plan.ticks);
            dropped += plan.dropped;
            schedule.next_run_at = plan.next_run_at;
        }
        prop_assert!(made.windows(2).all(|pair| pair[0] < pair[1]), "twice or out of order");
        if dropped == 0 {
            prop_assert_eq!(made, unbroken);
        } else {
            prop_assert_eq!(made.len() as u64 + dropped, unbroken.len() as u64);
            prop_assert!(made.iter().all(|tick| unbroken.binary_search(tick).is_ok()));
        }
    }

    #[test]
    fn an_interval_across_restarts_has_each_tick_once(
        every_ms in 100..100_000u64,
        steps_ms in prop::collection::vec(0..50_000i64, 1..100),
    ) {
        let start = at(NOON);
        let mut schedule = every(&crate::duration::format(Duration::from_millis(every_ms)), "all", start);
        let (mut now, mut k) = (start, 0);
        for step in steps_ms {
            now = Timestamp::from_millisecond(now.as_millisecond() + step).expect("in range");
            let plan = plan(&schedule, now);
            for tick in plan.ticks {
                k += 1;
                prop_assert_eq!(tick, start + Duration::from_millis(every_ms) * k);
            }
            prop_assert_eq!(plan.dropped, 0);
            schedule.next_run_at = plan.next_run_at;
            prop_assert_eq!(schedule.next_run_at, Some(start + Duration::from_millis(every_ms) * (k + 1)));
        }
    }
}

#[test]
fn putting_the_same_times_again_moves_no_tick() {
    let known = every("1h", "latest", at(NOON));
    let later = seconds(at(NOON), 600);
    let mut again = every("1h", "all", later);
    again.succeed(&known, later);
    assert_eq!((again.next_run_at, again.missed), (known.next_run_at, Missed::All));
    let mut other = every("2h", "all", later);
    other.succeed(&known, later);
    assert_eq!(other.next_run_at, Some(seconds(later, 7_200)), "other times begin anew");
}
