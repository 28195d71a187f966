//! Durations as people write them: `250ms`, `30s`, `1h30m`, `30d`.

use std::time::Duration;

/// A hundred years. Adding it to any instant we meet cannot overflow.
pub const DURATION_MAX: Duration = Duration::from_secs(100 * 365 * 86_400);

const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Parses one or more whole numbers, each with its unit, the larger unit first.
pub fn parse(text: &str) -> Result<Duration, String> {
    let expected = || format!("expected a duration such as \"250ms\", \"30s\" or \"1h30m\", got {text:?}");
    let too_long = || format!("expected a duration of at most 100 years, got {text:?}");
    if text == "0" {
        return Ok(Duration::ZERO);
    }
    let (mut rest, mut total_ms, mut unit_before) = (text, 0u64, u64::MAX);
    while !rest.is_empty() {
        let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
        let number = &rest[..digits];
        rest = &rest[digits..];
        let letters = rest.bytes().take_while(u8::is_ascii_alphabetic).count();
        let unit = UNITS.iter().find(|(unit, _)| *unit == &rest[..letters]).map(|(_, ms)| *ms);
        rest = &rest[letters..];
        let unit = unit.filter(|unit| digits > 0 && *unit < unit_before).ok_or_else(expected)?;
        let number: u64 = number.parse().map_err(|_| too_long())?;
        let part = number.checked_mul(unit).ok_or_else(too_long)?;
        total_ms = total_ms.checked_add(part).ok_or_else(too_long)?;
        unit_before = unit;
    }
    if text.is_empty() {
        return Err(expected());
    }
    let total = Duration::from_millis(total_ms);
    if total > DURATION_MAX { Err(too_long()) } else { Ok(total) }
}

/// The shortest text that [`parse`] reads back as the same number of milliseconds.
pub fn format(duration: Duration) -> String {
    let mut rest = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    if rest == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, ms) in UNITS {
        let count = rest / ms;
        if count > 0 {
            text.push_str(&format!("{count}{unit}"));
            rest %= ms;
        }
    }
    text
}

/// For `#[serde(with = "convoke_core::duration")]`.
pub fn serialize<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = <std::borrow::Cow<'de, str> as serde::Deserialize>::deserialize(deserializer)?;
    parse(&text).map_err(serde::de::Error::custom)
}

/// The same for a duration that may be absent.
pub mod option {
    use super::*;

    pub fn serialize<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        let text = <Option<std::borrow::Cow<'de, str>> as serde::Deserialize>::deserialize(deserializer)?;
        text.map(|text| parse(&text).map_err(serde::de::Error::custom)).transpose()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        for (text, ms) in
            [("0", 0), ("0s", 0), ("250ms", 250), ("30s", 30_000), ("1h30m", 5_400_000), ("30d", 2_592_000_000)]
        {
            assert_eq!(parse(text), Ok(Duration::from_millis(ms)), "{text}");
        }
    }

    #[test]
    fn refuses_the_rest_and_says_what_it_wants() {
        let overflowing = ["99999999999999999999s", "18446744073709551615d", "36501d"];
        for text in
            ["", "5", "-5s", "s", "1.5s", "5 s", "30m1h", "1s1s", "5x", "ms5", "∞"].into_iter().chain(overflowing)
        {
            let error = parse(text).expect_err(text);
            assert!(error.contains("expected a duration") && error.contains(text), "{error}");
        }
    }

    #[test]
    fn format_is_read_back() {
        for ms in [0, 1, 999, 1_000, 61_001, 90_061_007, 2_592_000_000] {
            let duration = Duration::from_millis(ms);
            assert_eq!(parse(&format(duration)), Ok(duration));
        }
    }
}
