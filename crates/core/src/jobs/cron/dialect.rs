//! Translates forms that other cron libraries accept and `croner` does not.
//!
//! | form | meaning |
//! | --- | --- |
//! | `@midnight`, `@every_minute`, `@every_second` | `0 0 * * *`, `* * * * *`, `* * * * * *` |
//! | `22-2`, `FRI-MON`, `50-10/5` | a reversed range: up to the field's last value, then on from its first; a step goes on across the end |
//! | `5/15` | from 5 to the field's last value in steps of 15 |
//! | `L-3` | the third day before the last day of the month |
//! | `L-3W` | the weekday (Monday to Friday) nearest to it, in the same month |
//!
//! Reversed ranges are replaced by lists of values, open steps by ranges. `L-3` is removed from the expression and
//! matched here, because no list of days expresses it.

use std::borrow::Cow;

use jiff::civil::{Date, Weekday};

/// An expression that `croner` accepts, and the day-of-month field if it counts from the end of the month.
pub(super) struct Translated<'a> {
    pub expression: Cow<'a, str>,
    pub from_last_day: Option<FromLastDay>,
}

/// `L-3` or `L-3W`: a day counted back from the last day of the month.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FromLastDay {
    offset: i8,
    nearest_weekday: bool,
}

/// The values of a field, and their names.
struct Field {
    first: u8,
    last: u8,
    /// The number of different values. Sunday is 0 and 7.
    cycle: u8,
    names: &'static [&'static str],
}

const MONTHS: &[&str] = &["JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC"];
const WEEKDAYS: &[&str] = &["SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT"];

/// Seconds, minutes, hours, days of the month, months, days of the week.
const FIELDS: [Field; 6] = [
    Field { first: 0, last: 59, cycle: 60, names: &[] },
    Field { first: 0, last: 59, cycle: 60, names: &[] },
    Field { first: 0, last: 23, cycle: 24, names: &[] },
    Field { first: 1, last: 31, cycle: 31, names: &[] },
    Field { first: 1, last: 12, cycle: 12, names: MONTHS },
    Field { first: 0, last: 7, cycle: 7, names: WEEKDAYS },
];
const DAY_OF_MONTH: usize = 3;

/// Rewrites the forms that `croner` does not accept. Leaves everything else, mistakes included, for `croner` to check.
pub(super) fn translate(expression: &str) -> Translated<'_> {
    let unchanged = Translated { expression: expression.into(), from_last_day: None };
    match expression.trim().to_ascii_lowercase().as_str() {
        "@midnight" => return Translated { expression: "0 0 * * *".into(), ..unchanged },
        "@every_minute" => return Translated { expression: "* * * * *".into(), ..unchanged },
        "@every_second" => return Translated { expression: "* * * * * *".into(), ..unchanged },
        _ => {}
    }
    let parts: Vec<&str> = expression.split_whitespace().collect();
    let Some(seconds_left_out) = FIELDS.len().checked_sub(parts.len()).filter(|left_out| *left_out <= 1) else {
        return unchanged;
    };
    let mut from_last_day = None;
    let fields = parts.into_iter().zip(seconds_left_out..).map(|(part, at)| {
        if at == DAY_OF_MONTH
            && let Some(day) = FromLastDay::parse(part)
        {
            from_last_day = Some(day);
            return Cow::Borrowed("*");
        }
        FIELDS[at].expand(part)
    });
    let fields: Vec<Cow<'_, str>> = fields.collect();
    Translated { expression: fields.join(" ").into(), from_last_day }
}

impl Field {
    /// Replaces each reversed range and each open step of a comma-separated list.
    fn expand<'a>(&self, list: &'a str) -> Cow<'a, str> {
        if !list.contains(['-', '/']) {
            return list.into();
        }
        let items: Vec<Cow<'_, str>> = list.split(',').map(|item| self.expand_item(item)).collect();
        items.join(",").into()
    }

    fn expand_item<'a>(&self, item: &'a str) -> Cow<'a, str> {
        if let Some(values) = self.reversed_range(item) {
            return values.iter().map(u8::to_string).collect::<Vec<_>>().join(",").into();
        }
        match item.split_once('/') {
            Some((start, step)) if self.value(start).is_some() => format!("{start}-{}/{step}", self.last).into(),
            _ => item.into(),
        }
    }

    /// Returns the values of `item` if it is a range whose start is after its end.
    fn reversed_range(&self, item: &str) -> Option<Vec<u8>> {
        let (range, step) = item.split_once('/').unwrap_or((item, "1"));
        let (start, end) = range.split_once('-')?;
        let (start, end, step) = (self.value(start)?, self.value(end)?, step.parse::<u8>().ok()?);
        if start <= end || step == 0 {
            return None;
        }
        let span = end + self.cycle - start;
        Some((0..=span).step_by(step.into()).map(|n| (start - self.first + n) % self.cycle + self.first).collect())
    }

    fn value(&self, text: &str) -> Option<u8> {
        if let Some(at) = self.names.iter().position(|name| name.eq_ignore_ascii_case(text)) {
            return u8::try_from(at).ok().map(|at| at + self.first);
        }
        text.parse::<u8>().ok().filter(|value| (self.first..=self.last).contains(value))
    }
}

impl FromLastDay {
    /// Parses `L-3` and `L-3W`. The offset is 1 to 30.
    fn parse(field: &str) -> Option<FromLastDay> {
        let field = field.to_ascii_uppercase();
        let offset = field.strip_prefix("L-")?;
        let (offset, nearest_weekday) = match offset.strip_suffix('W') {
            Some(offset) => (offset, true),
            None => (offset, false),
        };
        let is_number = !offset.is_empty() && offset.bytes().all(|byte| byte.is_ascii_digit());
        let offset = offset.parse::<i8>().ok().filter(|offset| is_number && (1..=30).contains(offset))?;
        Some(FromLastDay { offset, nearest_weekday })
    }

    /// Returns whether `date` is this day of its month. A month that is too short has no such day.
    pub fn matches(self, date: Date) -> bool {
        let day = date.days_in_month() - self.offset;
        if day < 1 {
            return false;
        }
        if !self.nearest_weekday {
            return date.day() == day;
        }
        let Ok(target) = Date::new(date.year(), date.month(), day) else { return false };
        let shift = match target.weekday() {
            // The nearest weekday must not leave the month.
            Weekday::Saturday if day == 1 => 2,
            Weekday::Saturday => -1,
            // The offset is at least 1, so the next day is in the month.
            Weekday::Sunday => 1,
            _ => 0,
        };
        date.day() == day + shift
    }
}
