//! Expressions of crontab(5) and of Cronos (.NET), each with the ticks that its documentation gives.

use super::*;

/// The first ticks of `expression` after the start of 2026, as UTC text without the seconds.
fn first(expression: &str, day: DayRule, count: usize) -> Vec<String> {
    let cron = Cron::parse(expression, "UTC", day).unwrap_or_else(|error| panic!("{expression}: {error}"));
    let from = at("2025-12-31T23:59:59Z");
    let ticks = std::iter::successors(cron.next_after(from), |tick| cron.next_after(*tick));
    ticks.take(count).map(|tick| tick.to_string()[..16].to_owned()).collect()
}

#[test]
fn forms_that_both_dialects_share_name_the_same_ticks() {
    for (expression, expected) in [
        ("* * * * *", ["2026-01-01T00:00", "2026-01-01T00:01", "2026-01-01T00:02"]),
        ("0  0 1 * *", ["2026-01-01T00:00", "2026-02-01T00:00", "2026-03-01T00:00"]),
        ("*/5 * * * *", ["2026-01-01T00:00", "2026-01-01T00:05", "2026-01-01T00:10"]),
        ("*/24 0 * * *", ["2026-01-01T00:00", "2026-01-01T00:24", "2026-01-01T00:48"]),
        ("0 0 * * MON-FRI", ["2026-01-01T00:00", "2026-01-02T00:00", "2026-01-05T00:00"]),
        ("0 0 * * 7", ["2026-01-04T00:00", "2026-01-11T00:00", "2026-01-18T00:00"]),
        ("0 0 1-15/3 * *", ["2026-01-01T00:00", "2026-01-04T00:00", "2026-01-07T00:00"]),
        ("3,5-11/3,12 0 * * *", ["2026-01-01T00:03", "2026-01-01T00:05", "2026-01-01T00:08"]),
        ("@weekly", ["2026-01-04T00:00", "2026-01-11T00:00", "2026-01-18T00:00"]),
    ] {
        for day in [DayRule::Or, DayRule::And] {
            assert_eq!(first(expression, day, 3), expected, "{expression}");
        }
    }
}

#[test]
fn forms_of_cronos_are_read_as_its_documentation_says() {
    for (expression, expected) in [
        ("@midnight", ["2026-01-01T00:00", "2026-01-02T00:00", "2026-01-03T00:00"]),
        ("@every_minute", ["2026-01-01T00:00", "2026-01-01T00:01", "2026-01-01T00:02"]),
        ("@EVERY_MINUTE", ["2026-01-01T00:00", "2026-01-01T00:01", "2026-01-01T00:02"]),
        // 23, 0, 1.
        ("0 23-01 * * *", ["2026-01-01T00:00", "2026-01-01T01:00", "2026-01-01T23:00"]),
        ("0 0 1 DEC-FEB *", ["2026-01-01T00:00", "2026-02-01T00:00", "2026-12-01T00:00"]),
        ("0 0 * * FRI-SUN", ["2026-01-02T00:00", "2026-01-03T00:00", "2026-01-04T00:00"]),
        ("0 0 * * 6-1", ["2026-01-03T00:00", "2026-01-04T00:00", "2026-01-05T00:00"]),
        // Every two minutes from 1:45 across the hour's end to 1:15, and at 1:30.
        ("30,45-15/2 1 * * *", ["2026-01-01T01:01", "2026-01-01T01:03", "2026-01-01T01:05"]),
        ("40/10 * * * *", ["2026-01-01T00:40", "2026-01-01T00:50", "2026-01-01T01:40"]),
        ("0 0 L   * *", ["2026-01-31T00:00", "2026-02-28T00:00", "2026-03-31T00:00"]),
        ("0 0 L-1 * *", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-30T00:00"]),
        ("0 0 L-3 * ?", ["2026-01-28T00:00", "2026-02-25T00:00", "2026-03-28T00:00"]),
        // The 3rd of January 2026 is a Saturday.
        ("0 0 3W  * *", ["2026-01-02T00:00", "2026-02-03T00:00", "2026-03-03T00:00"]),
        ("0 0 LW  * *", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-31T00:00"]),
        // Three days before the last: Wednesday the 28th, Wednesday the 25th, Saturday the 28th.
        ("0 0 L-3W * *", ["2026-01-28T00:00", "2026-02-25T00:00", "2026-03-27T00:00"]),
        ("0 0 * * 2L", ["2026-01-27T00:00", "2026-02-24T00:00", "2026-03-31T00:00"]),
        ("0 0 * * FRIL", ["2026-01-30T00:00", "2026-02-27T00:00", "2026-03-27T00:00"]),
        ("0 0 * * 6#3", ["2026-01-17T00:00", "2026-02-21T00:00", "2026-03-21T00:00"]),
        ("0 0 ? * MON#1", ["2026-01-05T00:00", "2026-02-02T00:00", "2026-03-02T00:00"]),
    ] {
        assert_eq!(first(expression, DayRule::And, 3), expected, "{expression}");
    }
    let every_second = cron("@every_second", "UTC");
    assert_eq!(every_second.next_after(at("2026-01-01T00:00:00Z")), Some(at("2026-01-01T00:00:01Z")));
}

#[test]
fn two_restricted_day_fields_follow_the_rule() {
    for (expression, or, and) in [
        // Every 13th and every Friday; Friday the 13th.
        ("0 0 13 * 5", ["2026-01-02", "2026-01-09", "2026-01-13"], ["2026-02-13", "2026-03-13", "2026-11-13"]),
        // Every last day but one and every Monday; both.
        ("0 0 L-1 * MON", ["2026-01-05", "2026-01-12", "2026-01-19"], ["2026-03-30", "2026-06-29", "2027-08-30"]),
        ("0 0 LW * FRI", ["2026-01-02", "2026-01-09", "2026-01-16"], ["2026-01-30", "2026-02-27", "2026-05-29"]),
    ] {
        let days = |rule| first(expression, rule, 3).into_iter().map(|tick| tick[..10].to_owned()).collect::<Vec<_>>();
        assert_eq!(days(DayRule::Or), or, "{expression}");
        assert_eq!(days(DayRule::And), and, "{expression}");
        assert!(cron(expression, "UTC").restricts_both_days());
    }
    for expression in ["0 0 13 * *", "0 0 * * 5", "0 0 L-1 * ?", "0 0 ? * 5", "@daily"] {
        assert!(!cron(expression, "UTC").restricts_both_days(), "{expression}");
    }
    // croner's own form for both.
    assert_eq!(first("0 0 13 * +5", DayRule::Or, 1), ["2026-02-13T00:00"]);
}

#[test]
fn a_reversed_range_is_the_list_of_its_values() {
    for (range, list) in [
        ("0 22-2 * * *", "0 22,23,0,1,2 * * *"),
        ("50-10/5 * * * *", "50,55,0,5,10 * * * *"),
        ("58-4/3 * * * *", "58,1,4 * * * *"),
        ("50-5 * * * * *", "50,51,52,53,54,55,56,57,58,59,0,1,2,3,4,5 * * * * *"),
        ("0 0 30-2 * *", "0 0 30,31,1,2 * *"),
        ("0 0 1 11-2/2 *", "0 0 1 11,1 *"),
        ("0 0 * * 5-7", "0 0 * * 5,6,0"),
        ("0 0 * * 7-2", "0 0 * * 0,1,2"),
    ] {
        let (from, to) = (at("2026-01-01T00:00:00Z"), at("2026-01-09T00:00:00Z"));
        assert_eq!(ticks(&cron(range, "UTC"), from, to), ticks(&cron(list, "UTC"), from, to), "{range}");
        let year = at("2027-01-01T00:00:00Z");
        if !range.contains("* * * *") {
            assert_eq!(ticks(&cron(range, "UTC"), from, year), ticks(&cron(list, "UTC"), from, year), "{range}");
        }
    }
}

#[test]
fn days_near_the_end_of_a_month_stay_in_it() {
    let days = |expression: &str, count| {
        first(expression, DayRule::Or, count).into_iter().map(|tick| tick[5..10].to_owned()).collect::<Vec<_>>()
    };
    // February has no thirtieth day before its last.
    assert_eq!(days("0 0 L-30 * *", 3), ["01-01", "03-01", "05-01"]);
    // 1 February 2026 is a Sunday, 1 August a Saturday: neither moves into the month before.
    assert_eq!(days("0 0 L-27W 2 *", 1), ["02-02"]);
    assert_eq!(days("0 0 L-30W 8 *", 1), ["08-03"]);
}

/// Eastern time changes on 13 March 2016 (02:00 becomes 03:00) and on 6 November 2016 (02:00 becomes 01:00).
#[test]
fn changes_of_the_clocks_are_handled_as_the_documentation_of_cronos_says() {
    let eastern = |expression, from: &str, count: usize| {
        let cron = cron(expression, "America/New_York");
        let ticks = std::iter::successors(cron.next_after(at(from)), |tick| cron.next_after(*tick));
        ticks.take(count).map(|tick| tick.to_string()).collect::<Vec<_>>()
    };
    assert_eq!(eastern("0 30 2 * * *", "2016-03-13T06:59:59Z", 1), ["2016-03-13T07:00:00Z"]);
    let hourly = eastern("30 * * * *", "2016-11-06T04:59:59Z", 3);
    assert_eq!(hourly, ["2016-11-06T05:30:00Z", "2016-11-06T06:30:00Z", "2016-11-06T07:30:00Z"]);
    let daily = eastern("30 1 * * *", "2016-11-06T04:59:59Z", 2);
    assert_eq!(daily, ["2016-11-06T05:30:00Z", "2016-11-07T06:30:00Z"]);
}
