//! Durations as people write them: `250ms`, `30s`, `1h30m`, `30d`.

use std::time::Duration;

use crate::error::Invalid;

/// Upper bound of a duration (100 years). Adding it to any instant in use cannot overflow.
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

/// Returns the shortest text that [`parse`] reads back as the same number of milliseconds.
pub fn format(duration: Duration) -> String {
    let mut rest = ms(duration);
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

/// Returns whole milliseconds, saturating. JSON shows them beside the text.
pub fn ms(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Rejects the first of these durations that is zero, with the name of its key.
pub fn check_positive<const N: usize>(keys: [(&str, Duration); N]) -> Result<(), Invalid> {
    match keys.into_iter().find(|(_, value)| value.is_zero()) {
        Some((key, _)) => Err(Invalid::new(key, "expected a duration longer than zero, got \"0s\"")),
        None => Ok(()),
    }
}

/// Serializes as text, for `#[serde(with = "convoke_core::duration")]`.
pub fn serialize<S: serde::Serializer>(duration: &Duration, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&format(*duration))
}

/// Deserializes from text, for `#[serde(with = "convoke_core::duration")]`.
pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    deserializer.deserialize_str(Text)
}

/// Reads a text. Its error names the expected form also for a number.
struct Text;

impl serde::de::Visitor<'_> for Text {
    type Value = Duration;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a duration such as \"250ms\", \"30s\" or \"1h30m\"")
    }

    fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Duration, E> {
        parse(text).map_err(E::custom)
    }
}

/// The same for an optional duration; `None` is `null` or an absent field.
pub mod option {
    use super::*;

    /// Serializes as text or `null`.
    pub fn serialize<S: serde::Serializer>(duration: &Option<Duration>, serializer: S) -> Result<S::Ok, S::Error> {
        match duration {
            Some(duration) => super::serialize(duration, serializer),
            None => serializer.serialize_none(),
        }
    }

    /// Deserializes from text or `null`.
    pub fn deserialize<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Duration>, D::Error> {
        deserializer.deserialize_option(Optional)
    }

    struct Optional;

    impl<'de> serde::de::Visitor<'de> for Optional {
        type Value = Option<Duration>;

        fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            Text.expecting(f)
        }

        fn visit_none<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_unit<E>(self) -> Result<Self::Value, E> {
            Ok(None)
        }

        fn visit_some<D: serde::Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
            super::deserialize(deserializer).map(Some)
        }
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

    #[derive(Debug, PartialEq, serde::Serialize, serde::Deserialize)]
    struct Waits {
        #[serde(with = "super")]
        wait: Duration,
        #[serde(with = "super::option", default)]
        timeout: Option<Duration>,
    }

    #[test]
    fn json_has_them_as_text_and_an_absent_one_as_null() {
        let (wait, timeout) = (Duration::from_millis(1_500), Some(Duration::from_secs(90)));
        for (waits, text) in [
            (Waits { wait, timeout }, r#"{"wait":"1s500ms","timeout":"1m30s"}"#),
            (Waits { wait, timeout: None }, r#"{"wait":"1s500ms","timeout":null}"#),
        ] {
            assert_eq!(serde_json::to_string(&waits).expect("serialises"), text);
            assert_eq!(serde_json::from_str::<Waits>(text).expect("reads"), waits);
        }
        let silent: Waits = serde_json::from_str(r#"{"wait":"0"}"#).expect("reads");
        assert_eq!(silent, Waits { wait: Duration::ZERO, timeout: None });
        let escaped: Waits = serde_json::from_str(r#"{"wait":"\u0035s"}"#).expect("reads");
        assert_eq!(escaped.wait, Duration::from_secs(5));
    }

    #[test]
    fn json_that_is_no_duration_is_told_what_was_expected() {
        for wrong in ["5", "-5", "1.5", "1e999", "true", "[]", "{}", r#""5""#, r#""-5s""#, r#""99999999999d""#] {
            for body in [format!(r#"{{"wait":{wrong}}}"#), format!(r#"{{"wait":"1s","timeout":{wrong}}}"#)] {
                let error = serde_json::from_str::<Waits>(&body).expect_err(&body).to_string();
                assert!(error.contains("a duration") || error.contains("number out of range"), "{error}");
            }
        }
    }

    proptest::proptest! {
        #[test]
        fn no_text_can_do_worse_than_be_refused(text in "[0-9dhms]{0,30}|.{0,20}") {
            if let Ok(duration) = parse(&text) {
                proptest::prop_assert!(duration <= DURATION_MAX);
                proptest::prop_assert_eq!(parse(&format(duration)), Ok(duration));
            }
        }
    }
}
