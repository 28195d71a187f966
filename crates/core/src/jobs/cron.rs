//! The ticks of a cron expression in a time zone.
//!
//! `croner` parses the expression and matches its days. The search is implemented here, because it must end (it returns
//! `None` after `HORIZON_DAYS` for a date that never comes) and because of clock changes:
//!
//! | expression | meaning | at a clock change |
//! | --- | --- | --- |
//! | names hours: `30 2 * * *`, `0 */6 * * *` | local times | a skipped local time ticks once, right after the gap; a repeated one ticks the first time only |
//! | every hour: `*/5 * * * *`, `@hourly` | a rhythm | follows the wall clock through gap and overlap, so that it neither pauses for an hour nor ticks more often |
//!
//! Time zones come from the database built into the binary, so every node computes the same ticks, independent of its
//! machine.

use jiff::civil::{Date, DateTime, Time};
use jiff::tz::{AmbiguousOffset, TimeZone, TimeZoneDatabase};
use jiff::{Span, Timestamp, ToSpan};

pub use super::cadence::DayRule;
use crate::error::Invalid;
use crate::limits::NAME_BYTES_MAX;
use dialect::{FromLastDay, Translated};

mod dialect;

/// Upper bound of the days that a search covers. The 29th of February on a given weekday can be 40 years away.
const HORIZON_DAYS: u32 = 41 * 366;

/// Upper bound of the clock changes of a zone within the horizon.
const OFFSET_CHANGES_MAX: u32 = 8 * 41;

const EVERY_HOUR: u64 = (1 << 24) - 1;

/// A parsed cron expression in a time zone.
#[derive(Debug, Clone)]
pub struct Cron {
    days: croner::CronPattern,
    /// The day-of-month field if it is `L-3` or `L-3W`; `days` then has `*` in its place.
    from_last_day: Option<FromLastDay>,
    day: DayRule,
    hours: u64,
    minutes: u64,
    seconds: u64,
    zone: TimeZone,
}

impl Cron {
    /// Parses five fields, six with seconds first, or a nickname such as `@hourly`. `tz` is an IANA name.
    pub fn parse(expression: &str, tz: &str, day: DayRule) -> Result<Cron, Invalid> {
        let zone = zone(tz)?;
        if expression.len() > NAME_BYTES_MAX {
            let message = format!("expected at most {NAME_BYTES_MAX} bytes, got {}", expression.len());
            return Err(Invalid::new("cron", message));
        }
        let refused = |error| {
            let message = format!("expected a cron expression of five or six fields, got {expression:?}: {error}");
            Invalid::new("cron", message)
        };
        let parser = croner::parser::CronParser::builder()
            .year(croner::parser::Year::Disallowed)
            .dom_and_dow(day == DayRule::And)
            .build();
        let Translated { expression: translated, from_last_day } = dialect::translate(expression);
        let pattern = parser.parse(&translated).map_err(refused)?.pattern;
        Ok(Cron {
            hours: bits(24, |hour| pattern.hour_match(hour)).map_err(refused)?,
            minutes: bits(60, |minute| pattern.minute_match(minute)).map_err(refused)?,
            seconds: bits(60, |second| pattern.second_match(second)).map_err(refused)?,
            // A `+` before the day-of-week field means `and`, too.
            day: if pattern.matches_dom_and_dow() { DayRule::And } else { DayRule::Or },
            days: pattern,
            from_last_day,
            zone,
        })
    }

    /// Returns the name of the zone, as the database spells it.
    pub fn tz(&self) -> &str {
        self.zone.iana_name().unwrap_or("UTC")
    }

    /// Returns the expression in words, in English.
    pub fn words(&self) -> String {
        let words = self.days.describe();
        match &self.from_last_day {
            // The pattern has `*` in its place.
            Some(_) => format!("{words} Of these days, the one that is counted from the end of the month."),
            None => words,
        }
    }

    /// Returns whether both day fields are restricted, so that [`DayRule`] decides.
    pub fn restricts_both_days(&self) -> bool {
        (self.from_last_day.is_some() || !self.days.is_dom_wildcard()) && !self.days.is_dow_wildcard()
    }

    /// Returns the first tick after `at`; `None` if there is none within the horizon.
    pub fn next_after(&self, at: Timestamp) -> Option<Timestamp> {
        if self.hours == EVERY_HOUR { self.next_of_rhythm(at) } else { self.next_of_local_times(at) }
    }

    /// Returns the last tick before `at`; `None` if there is none within the horizon.
    pub fn last_before(&self, at: Timestamp) -> Option<Timestamp> {
        if self.hours == EVERY_HOUR { self.last_of_rhythm(at) } else { self.last_of_local_times(at) }
    }

    fn next_of_local_times(&self, at: Timestamp) -> Option<Timestamp> {
        let mut civil = whole_second(self.zone.to_datetime(at));
        // Later local times never have earlier instants, so the first instant after `at` is the result. The loop skips
        // at most the local times of one overlap, which ticked the first time.
        loop {
            civil = self.civil_from(civil.checked_add(1.second()).ok()?)?;
            let tick = self.instant(civil)?;
            if tick > at {
                return Some(tick);
            }
        }
    }

    fn last_of_local_times(&self, at: Timestamp) -> Option<Timestamp> {
        let mut civil = self.latest_civil_before(at)?;
        loop {
            civil = self.civil_until(civil)?;
            let tick = self.instant(civil)?;
            if tick < at {
                return Some(tick);
            }
            civil = civil.checked_sub(1.second()).ok()?;
        }
    }

    /// Returns an upper bound of the local times whose instants are before `at`.
    fn latest_civil_before(&self, at: Timestamp) -> Option<DateTime> {
        let civil = self.zone.to_datetime(at);
        let AmbiguousOffset::Fold { before, .. } = self.zone.to_ambiguous_timestamp(civil).offset() else {
            return Some(civil);
        };
        // In the second pass of an overlap, even later local times of it ticked in the first pass.
        let end_of_first = civil.checked_add(Span::new().seconds(fold_seconds(&self.zone, civil))).ok()?;
        if self.zone.to_offset(at) == before { Some(civil) } else { Some(end_of_first) }
    }

    /// Returns the instant of a local time: its first occurrence, or the end of the gap that skips it.
    fn instant(&self, civil: DateTime) -> Option<Timestamp> {
        match self.zone.to_ambiguous_timestamp(civil).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset.to_timestamp(civil).ok(),
            AmbiguousOffset::Fold { before, .. } => before.to_timestamp(civil).ok(),
            AmbiguousOffset::Gap { after, .. } => {
                // With the offset after the gap, the local time is just before the change.
                let just_before = after.to_timestamp(civil).ok()?;
                self.zone.following(just_before).next().map(|change| change.timestamp())
            }
        }
    }

    fn next_of_rhythm(&self, at: Timestamp) -> Option<Timestamp> {
        let (mut since, mut step) = (at, 1.second());
        for _ in 0..OFFSET_CHANGES_MAX {
            let offset = self.zone.to_offset(since);
            let start = whole_second(offset.to_datetime(since)).checked_add(step).ok()?;
            let found = offset.to_timestamp(self.civil_from(start)?).ok()?;
            match self.zone.following(since).next() {
                // After the next change the wall clock has another offset.
                Some(change) if change.timestamp() <= found => (since, step) = (change.timestamp(), 0.seconds()),
                _ => return Some(found),
            }
        }
        None
    }

    fn last_of_rhythm(&self, at: Timestamp) -> Option<Timestamp> {
        let mut until = at;
        for _ in 0..OFFSET_CHANGES_MAX {
            let just_before = until.checked_sub(1.nanosecond()).ok()?;
            let offset = self.zone.to_offset(just_before);
            let found = offset.to_timestamp(self.civil_until(offset.to_datetime(just_before))?).ok()?;
            match self.zone.preceding(until).next() {
                Some(change) if change.timestamp() > found => until = change.timestamp(),
                _ => return Some(found),
            }
        }
        None
    }

    /// Returns the first matching local time at or after `from`, which is a whole second.
    fn civil_from(&self, from: DateTime) -> Option<DateTime> {
        let (mut date, mut floor) = (from.date(), from.time());
        for _ in 0..HORIZON_DAYS {
            if self.matches_day(date)
                && let Some(time) = self.time_from(floor)
            {
                return Some(date.to_datetime(time));
            }
            (date, floor) = (date.tomorrow().ok()?, Time::midnight());
        }
        None
    }

    /// Returns the last matching local time at or before `until`.
    fn civil_until(&self, until: DateTime) -> Option<DateTime> {
        let (mut date, mut ceiling) = (until.date(), until.time());
        for _ in 0..HORIZON_DAYS {
            if self.matches_day(date)
                && let Some(time) = self.time_until(ceiling)
            {
                return Some(date.to_datetime(time));
            }
            (date, ceiling) = (date.yesterday().ok()?, Time::MAX);
        }
        None
    }

    fn matches_day(&self, date: Date) -> bool {
        let (year, month, day) = (i32::from(date.year()), date.month() as u32, date.day() as u32);
        // Neither match fails for an existing date; if one did, the expression would miss that day.
        if !self.days.month_match(month).unwrap_or(false) {
            return false;
        }
        let by_pattern = self.days.day_match(year, month, day, weekday(date)).unwrap_or(false);
        match (self.from_last_day, self.day) {
            (None, _) => by_pattern,
            (Some(day), DayRule::Or) if self.restricts_both_days() => by_pattern || day.matches(date),
            (Some(day), _) => by_pattern && day.matches(date),
        }
    }

    fn time_from(&self, floor: Time) -> Option<Time> {
        let (hour, minute, second) = (floor.hour() as u32, floor.minute() as u32, floor.second() as u32);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = lowest(self.seconds, second)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = lowest(self.minutes, minute + 1) {
                return time(hour, minute, lowest(self.seconds, 0)?);
            }
        }
        time(lowest(self.hours, hour + 1)?, lowest(self.minutes, 0)?, lowest(self.seconds, 0)?)
    }

    fn time_until(&self, ceiling: Time) -> Option<Time> {
        let (hour, minute, second) = (ceiling.hour() as u32, ceiling.minute() as u32, ceiling.second() as u32);
        if has(self.hours, hour) {
            if has(self.minutes, minute)
                && let Some(second) = highest(self.seconds, second + 1)
            {
                return time(hour, minute, second);
            }
            if let Some(minute) = highest(self.minutes, minute) {
                return time(hour, minute, highest(self.seconds, 60)?);
            }
        }
        time(highest(self.hours, hour)?, highest(self.minutes, 60)?, highest(self.seconds, 60)?)
    }
}

fn zone(tz: &str) -> Result<TimeZone, Invalid> {
    TimeZoneDatabase::bundled().get(tz).map_err(|_| {
        Invalid::new("tz", format!("expected an IANA time zone such as \"Europe/Berlin\" or \"UTC\", got {tz:?}"))
    })
}

/// Returns the length of the overlap that repeats `civil`.
fn fold_seconds(zone: &TimeZone, civil: DateTime) -> i64 {
    match zone.to_ambiguous_timestamp(civil).offset() {
        AmbiguousOffset::Fold { before, after } => i64::from(before.seconds() - after.seconds()),
        _ => 0,
    }
}

fn whole_second(civil: DateTime) -> DateTime {
    let time = civil.time();
    civil.date().at(time.hour(), time.minute(), time.second(), 0)
}

fn time(hour: u32, minute: u32, second: u32) -> Option<Time> {
    Time::new(hour as i8, minute as i8, second as i8, 0).ok()
}

fn weekday(date: Date) -> croner::Weekday {
    use croner::Weekday::*;
    [Sunday, Monday, Tuesday, Wednesday, Thursday, Friday, Saturday][date.weekday().to_sunday_zero_offset() as usize]
}

fn bits<E>(count: u32, matches: impl Fn(u32) -> Result<bool, E>) -> Result<u64, E> {
    (0..count).try_fold(0, |bits, value| Ok(bits | u64::from(matches(value)?) << value))
}

fn has(bits: u64, value: u32) -> bool {
    bits >> value & 1 == 1
}

/// Returns the lowest value of the set that is at least `floor`, which is at most 60.
fn lowest(bits: u64, floor: u32) -> Option<u32> {
    let above = bits >> floor << floor;
    (above != 0).then(|| above.trailing_zeros())
}

/// Returns the highest value of the set that is below `end`.
fn highest(bits: u64, end: u32) -> Option<u32> {
    let below = bits & ((1 << end) - 1);
    (below != 0).then(|| 63 - below.leading_zeros())
}

#[cfg(test)]
mod tests;
