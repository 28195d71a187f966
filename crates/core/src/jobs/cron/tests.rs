//! A simulated year in zones whose clocks change, against a plain enumeration of every minute of it.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

mod dialects;

const ZONES: [&str; 4] = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "UTC"];

fn at(text: &str) -> Timestamp {
    text.parse().expect("an instant")
}

fn cron(expression: &str, tz: &str) -> Cron {
    Cron::parse(expression, tz, DayRule::Or).expect("a cron expression")
}

/// All ticks in `(from, to]`.
fn ticks(cron: &Cron, from: Timestamp, to: Timestamp) -> Vec<Timestamp> {
    std::iter::successors(cron.next_after(from), |tick| cron.next_after(*tick)).take_while(|tick| *tick <= to).collect()
}

/// Every minute from `from` to `to`, with the time of the wall clock.
fn minutes(tz: &str, from: Timestamp, to: Timestamp) -> Vec<(Timestamp, DateTime)> {
    let zone = TimeZone::get(tz).expect("a zone");
    let first = from.as_second() / 60;
    (first..=to.as_second() / 60)
        .map(|minute| Timestamp::from_second(minute * 60).expect("in range"))
        .map(|instant| (instant, instant.to_zoned(zone.clone()).datetime()))
        .collect()
}

/// The meaning of local times: each minute of the calendar ticks once, at the first instant at which the wall clock
/// shows it, or a later time if it skips it.
fn calendar(minutes: &[(Timestamp, DateTime)]) -> Vec<(Timestamp, DateTime)> {
    let first: BTreeMap<DateTime, Timestamp> =
        minutes.iter().rev().map(|(instant, civil)| (*civil, *instant)).collect();
    let last = minutes[minutes.len() - 1].1;
    let mut calendar = Vec::new();
    let mut civil = minutes[0].1;
    while civil <= last {
        let (_, instant) = first.range(civil..).next().expect("the last minute is shown");
        calendar.push((*instant, civil));
        civil = civil.checked_add(1.minute()).expect("in range");
    }
    calendar
}

fn brute_local(calendar: &[(Timestamp, DateTime)], matches: impl Fn(DateTime) -> bool) -> Vec<Timestamp> {
    let mut found = brute_rhythm(calendar, matches);
    found.dedup();
    found
}

/// The meaning of a rhythm: each instant at which the wall clock shows a match.
fn brute_rhythm(minutes: &[(Timestamp, DateTime)], matches: impl Fn(DateTime) -> bool) -> Vec<Timestamp> {
    minutes.iter().filter(|(_, civil)| matches(*civil)).map(|(instant, _)| *instant).collect()
}

fn assert_same(expression: &str, tz: &str, found: &[Timestamp], expected: &[Timestamp]) {
    let missing: Vec<_> = expected.iter().filter(|tick| found.binary_search(tick).is_err()).take(5).collect();
    let surplus: Vec<_> = found.iter().filter(|tick| expected.binary_search(tick).is_err()).take(5).collect();
    assert_eq!((missing, surplus), (vec![], vec![]), "(missing, surplus) of {expression} in {tz}");
    assert_eq!(found, expected, "{expression} in {tz}");
}

type Match = fn(DateTime) -> bool;

#[test]
fn a_year_of_local_times_fires_exactly_the_right_ticks() {
    use jiff::civil::Weekday;
    let cases: [(&str, Match); 9] = [
        ("30 2 * * *", |c| c.hour() == 2 && c.minute() == 30),
        ("15 2 * * *", |c| c.hour() == 2 && c.minute() == 15),
        ("45 1 * * *", |c| c.hour() == 1 && c.minute() == 45),
        ("0 3 * * *", |c| c.hour() == 3 && c.minute() == 0),
        ("*/20 1-3 * * *", |c| (1..=3).contains(&c.hour()) && c.minute() % 20 == 0),
        ("30 */2 * * *", |c| c.hour() % 2 == 0 && c.minute() == 30),
        ("0 0 1 * *", |c| c.day() == 1 && c.hour() == 0 && c.minute() == 0),
        ("30 2 * * SUN", |c| c.weekday() == Weekday::Sunday && c.hour() == 2 && c.minute() == 30),
        ("10 1 13 * 5", |c| (c.day() == 13 || c.weekday() == Weekday::Friday) && c.hour() == 1 && c.minute() == 10),
    ];
    for tz in ZONES {
        let (from, to) = (at("2026-01-01T12:00:00Z"), at("2027-01-01T12:00:00Z"));
        let calendar = calendar(&minutes(tz, from, to));
        for (expression, matches) in cases {
            let found = ticks(&cron(expression, tz), at("2026-01-01T11:59:59Z"), to);
            assert_same(expression, tz, &found, &brute_local(&calendar, matches));
        }
    }
}

#[test]
fn a_year_of_a_rhythm_fires_exactly_the_right_ticks() {
    let cases: [(&str, Match); 4] = [
        ("*/5 * * * *", |c| c.minute() % 5 == 0),
        ("@hourly", |c| c.minute() == 0),
        ("30 * * * *", |c| c.minute() == 30),
        ("7 * * 3,10,11 *", |c| c.minute() == 7 && [3, 10, 11].contains(&c.month())),
    ];
    for tz in ZONES {
        let (from, to) = (at("2026-01-01T12:00:00Z"), at("2027-01-01T12:00:00Z"));
        let minutes = minutes(tz, from, to);
        for (expression, matches) in cases {
            let found = ticks(&cron(expression, tz), at("2026-01-01T11:59:59Z"), to);
            assert_same(expression, tz, &found, &brute_rhythm(&minutes, matches));
        }
    }
}

#[test]
fn a_skipped_local_time_comes_once_after_the_gap() {
    // Berlin, 29 March 2026: 02:00 becomes 03:00, at 01:00 UTC.
    let gap = ticks(&cron("30 2 * * *", "Europe/Berlin"), at("2026-03-28T12:00:00Z"), at("2026-03-30T12:00:00Z"));
    assert_eq!(gap, [at("2026-03-29T01:00:00Z"), at("2026-03-30T00:30:00Z")]);
    // Many local times in one gap, and the time just after it, are one tick.
    let many = ticks(&cron("*/10 2,3 * * *", "Europe/Berlin"), at("2026-03-29T00:00:00Z"), at("2026-03-29T01:15:00Z"));
    assert_eq!(many, [at("2026-03-29T01:00:00Z"), at("2026-03-29T01:10:00Z")]);
    // A zone that skips midnight.
    let midnight = ticks(&cron("@daily", "America/Sao_Paulo"), at("2018-11-03T12:00:00Z"), at("2018-11-05T12:00:00Z"));
    assert_eq!(midnight, [at("2018-11-04T03:00:00Z"), at("2018-11-05T02:00:00Z")]);
    // A zone that skips a whole day.
    let day = ticks(&cron("0 12 * * *", "Pacific/Apia"), at("2011-12-29T12:00:00Z"), at("2011-12-31T12:00:00Z"));
    assert_eq!(day, [at("2011-12-29T22:00:00Z"), at("2011-12-30T10:00:00Z"), at("2011-12-30T22:00:00Z")]);
}

#[test]
fn a_repeated_local_time_comes_once() {
    // Berlin, 25 October 2026: 03:00 becomes 02:00, at 01:00 UTC.
    let overlap = cron("15,45 30 2 * * *", "Europe/Berlin");
    let found = ticks(&overlap, at("2026-10-24T12:00:00Z"), at("2026-10-25T12:00:00Z"));
    assert_eq!(found, [at("2026-10-25T00:30:15Z"), at("2026-10-25T00:30:45Z")]);
    // Also from within the second pass.
    assert_eq!(overlap.next_after(at("2026-10-25T01:10:00Z")), Some(at("2026-10-26T01:30:15Z")));
    assert_eq!(overlap.last_before(at("2026-10-25T01:10:00Z")), Some(at("2026-10-25T00:30:45Z")));
}

#[test]
fn a_rhythm_keeps_its_pace_when_the_clocks_change() {
    let hourly = cron("30 * * * *", "Europe/Berlin");
    for from in ["2026-03-28T20:00:00Z", "2026-10-24T20:00:00Z"] {
        let found = ticks(&hourly, at(from), at(from) + std::time::Duration::from_secs(12 * 3600));
        assert_eq!(found.len(), 12);
        assert!(found.windows(2).all(|pair| pair[1].as_second() - pair[0].as_second() == 3600), "{found:?}");
    }
}

#[test]
fn rare_days_are_found_and_impossible_ones_end() {
    let next = |expression| cron(expression, "Europe/Berlin").next_after(at("2096-03-01T00:00:00Z"));
    assert_eq!(next("0 12 29 2 *"), Some(at("2104-02-29T11:00:00Z")));
    assert_eq!(next("* * 29 2 *"), Some(at("2104-02-28T23:00:00Z")));
    assert_eq!(next("0 12 L * *"), Some(at("2096-03-31T10:00:00Z")));
    // Days that never come, of a rhythm and of local times.
    for impossible in ["0 0 31 2 *", "* * 30 2 *", "0 12 31 4,6,9,11 *"] {
        assert_eq!(next(impossible), None, "{impossible}");
        assert_eq!(cron(impossible, "Africa/Casablanca").last_before(at("2026-03-01T00:00:00Z")), None);
    }
}

#[test]
fn five_fields_six_fields_and_nicknames_are_read() {
    let from = at("2026-06-15T10:20:30.5Z");
    for (expression, next) in [
        ("* * * * *", "2026-06-15T10:21:00Z"),
        ("* * * * * *", "2026-06-15T10:20:31Z"),
        ("*/20 * * * * *", "2026-06-15T10:20:40Z"),
        ("@hourly", "2026-06-15T11:00:00Z"),
        ("@daily", "2026-06-16T00:00:00Z"),
        ("@weekly", "2026-06-21T00:00:00Z"),
        ("@monthly", "2026-07-01T00:00:00Z"),
        ("@yearly", "2027-01-01T00:00:00Z"),
        ("@annually", "2027-01-01T00:00:00Z"),
        ("0 9 * JUL MON-FRI", "2026-07-01T09:00:00Z"),
        ("0 9 * * MON#1", "2026-07-06T09:00:00Z"),
        ("0 9 15W 8 *", "2026-08-14T09:00:00Z"),
    ] {
        assert_eq!(cron(expression, "UTC").next_after(from), Some(at(next)), "{expression}");
    }
}

#[test]
fn what_is_no_expression_is_refused_by_its_field() {
    let long = "1,".repeat(200);
    let bad = ["", " ", "* * * *", "* * * * * * *", "60 * * * *", "* 24 * * *", "* * 0 * *", "* * * 13 *", "* * * * 8"];
    let worse = [
        "@never",
        "*/0 * * * *",
        "5-1/0 * * * *",
        "0 0 L-0 * *",
        "0 0 L-31 * *",
        "a b c d e",
        "0 0 * * MONDAYISH",
        "∞ * * * *",
        "-1 * * * *",
    ];
    for expression in bad.into_iter().chain(worse).chain([long.as_str()]) {
        let refused = Cron::parse(expression, "UTC", DayRule::Or).expect_err(expression);
        assert_eq!(refused.field, "cron");
        assert!(refused.message.contains("expected"), "{refused}");
    }
}

#[test]
fn what_is_no_zone_is_refused_by_its_field() {
    for tz in ["", "Mars/Olympus", "../../etc/passwd", "+02:00", "Berlin"] {
        let refused = Cron::parse("@hourly", tz, DayRule::Or).expect_err(tz);
        assert_eq!(refused.field, "tz");
        assert!(refused.message.contains("expected an IANA time zone"), "{refused}");
    }
    assert_eq!(cron("@hourly", "europe/berlin").tz(), "Europe/Berlin");
    assert_eq!(cron("@hourly", "UTC").tz(), "UTC");
}

fn expression() -> impl Strategy<Value = String> {
    let second = prop_oneof![Just(String::new()), Just("*/20 ".to_string()), (0..60u8).prop_map(|n| format!("{n} "))];
    let minute = prop_oneof![Just("*/15".to_string()), (0..60u8).prop_map(|n| n.to_string())];
    let hour = prop_oneof![Just("*".to_string()), Just("*/3".to_string()), (0..5u8).prop_map(|n| n.to_string())];
    (second, minute, hour).prop_map(|(second, minute, hour)| format!("{second}{minute} {hour} * * *"))
}

proptest! {
    #[test]
    fn no_text_can_do_worse_than_be_refused(
        text in "[-*/,0-9a-zA-Z@#?+ ]{0,40}|.{0,20}|([0-9]{1,2}-[0-9]{1,2}(/[0-9])? ?){5}|0 0 L-[0-9]{1,3}W? \\* [0-9*]",
        day in prop::sample::select(vec![DayRule::Or, DayRule::And]),
    ) {
        if let Ok(cron) = Cron::parse(&text, "Europe/Berlin", day) {
            let now = at("2026-03-29T00:30:00Z");
            prop_assert!(cron.next_after(now).is_none_or(|tick| tick > now));
            prop_assert!(cron.last_before(now).is_none_or(|tick| tick < now));
        }
    }

    #[test]
    fn looking_back_finds_what_looking_ahead_found(
        expression in expression(),
        zone in 0..ZONES.len(),
        // Around each change of the clocks of 2026 in these zones.
        day in prop::sample::select(vec!["2026-03-08", "2026-03-29", "2026-04-04", "2026-10-03", "2026-10-25", "2026-11-01"]),
        millis in 0..86_400_000i64,
    ) {
        let cron = cron(&expression, ZONES[zone]);
        let moment = Timestamp::from_millisecond(at(&format!("{day}T00:00:00Z")).as_millisecond() + millis).expect("in range");
        let next = cron.next_after(moment).expect("comes");
        prop_assert!(next > moment);
        let last = cron.last_before(next).expect("came");
        prop_assert!(last <= moment, "{last} and {next} around {moment}");
        prop_assert_eq!(cron.next_after(last), Some(next));
    }
}
