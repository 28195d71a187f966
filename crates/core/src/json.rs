//! A JSON value that is stored and sent without being interpreted: a job's arguments and its result.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Invalid;
use crate::limits::JSON_DEPTH_MAX;

/// Any JSON value, kept as the text that was sent.
#[derive(Clone)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema), schema(value_type = serde_json::Value))]
pub struct Json(Box<RawValue>);

impl Json {
    /// Returns `null`.
    pub fn null() -> Self {
        Json(RawValue::NULL.to_owned())
    }

    /// Fails if `text` is not exactly one JSON value.
    pub fn parse(text: String) -> serde_json::Result<Self> {
        RawValue::from_string(text).map(Json)
    }

    /// Serializes a value.
    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Json)
    }

    /// Returns the JSON text.
    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    /// Returns the value for embedding in another serialized value.
    pub fn as_raw(&self) -> &RawValue {
        &self.0
    }

    /// Returns whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    /// Deserializes the value.
    pub fn to<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// Rejects a value that is larger than `bytes_max` or nested deeper than
    /// [`JSON_DEPTH_MAX`], half a surrogate pair, and numbers beyond a double. Parsing a
    /// raw value does not descend into it, so without this check a client could store a value that no reader can
    /// decode.
    pub fn check(&self, field: &str, bytes_max: usize) -> Result<(), Invalid> {
        let text = self.as_str();
        if text.len() > bytes_max {
            let message = format!("expected at most {bytes_max} bytes of JSON, got {}", text.len());
            return Err(Invalid::too_large(field, message));
        }
        let message = match inspect(text) {
            Ok(depth) if depth <= JSON_DEPTH_MAX => return Ok(()),
            Ok(_) => format!("expected JSON nested at most {JSON_DEPTH_MAX} deep"),
            Err(Unreadable::Surrogate) => {
                r"expected surrogate escapes in pairs (as \ud83d\ude00), got one that stands alone".to_owned()
            }
            Err(Unreadable::Number) => format!("expected numbers of at most {:e} either way of zero", f64::MAX),
        };
        Err(Invalid::new(field, message))
    }
}

/// A number with fewer bytes than this and no exponent fits a double.
const LONG_NUMBER: usize = 300;

/// A text that the grammar allows and a strict reader cannot decode.
#[derive(Debug, PartialEq)]
enum Unreadable {
    Surrogate,
    Number,
}

/// Returns how deep arrays and objects nest in a valid JSON text, or why the text cannot be decoded.
fn inspect(text: &str) -> Result<usize, Unreadable> {
    let bytes = text.as_bytes();
    let (mut depth, mut deepest, mut at) = (0usize, 0usize, 0usize);
    while let Some(byte) = bytes.get(at) {
        at += 1;
        match byte {
            b'"' => at = pass_string(bytes, at)?,
            b'-' | b'0'..=b'9' => at = pass_number(text, at - 1)?,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    Ok(deepest)
}

/// Returns the index after the string whose first character, behind its quote, is at `at`.
fn pass_string(text: &[u8], mut at: usize) -> Result<usize, Unreadable> {
    while let Some(byte) = text.get(at) {
        at += 1;
        match byte {
            b'"' => break,
            b'\\' => match escaped_unit(text, at - 1) {
                None => at += 1,
                Some(0xd800..=0xdbff) => match escaped_unit(text, at + 5) {
                    Some(0xdc00..=0xdfff) => at += 11,
                    _ => return Err(Unreadable::Surrogate),
                },
                Some(0xdc00..=0xdfff) => return Err(Unreadable::Surrogate),
                Some(_) => at += 5,
            },
            _ => {}
        }
    }
    Ok(at)
}

/// Returns the UTF-16 unit of the `\u` escape at `at`, if there is one.
fn escaped_unit(text: &[u8], at: usize) -> Option<u32> {
    let digits = text.get(at..at + 6)?.strip_prefix(br"\u")?;
    digits.iter().try_fold(0, |unit, digit| Some(unit * 16 + char::from(*digit).to_digit(16)?))
}

/// Returns the index after the number that begins at `from`.
fn pass_number(text: &str, from: usize) -> Result<usize, Unreadable> {
    let rest = &text[from..];
    let is_of_number = |byte: &u8| matches!(byte, b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E');
    let mut has_exponent = false;
    let length =
        rest.bytes().take_while(is_of_number).inspect(|byte| has_exponent |= matches!(byte, b'e' | b'E')).count();
    if (has_exponent || length > LONG_NUMBER) && !rest[..length].parse::<f64>().is_ok_and(f64::is_finite) {
        return Err(Unreadable::Number);
    }
    Ok(from + length)
}

impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl PartialEq for Json {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Default for Json {
    fn default() -> Self {
        Json::null()
    }
}

impl Serialize for Json {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Json {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Box::<RawValue>::deserialize(deserializer).map(Json)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::parse(text.into()).expect("valid JSON")
    }

    #[test]
    fn brackets_in_strings_do_not_nest() {
        assert_eq!(inspect(r#"{"a":"[[[{{{\"[[","b":[1],"c\\":[]}"#), Ok(2));
    }

    #[test]
    fn deep_nesting_is_refused_although_it_parses() {
        let deep = format!("{}{}", "[".repeat(JSON_DEPTH_MAX + 1), "]".repeat(JSON_DEPTH_MAX + 1));
        let refused = json(&deep).check("args", 1 << 20).expect_err("too deep");
        assert_eq!(refused.field, "args");
        let fine = format!("{}{}", "[".repeat(JSON_DEPTH_MAX), "]".repeat(JSON_DEPTH_MAX));
        json(&fine).check("args", 1 << 20).expect("deep enough");
    }

    #[test]
    fn half_of_a_surrogate_pair_is_refused_wherever_it_stands() {
        let halves = [
            r#""\ud800""#,
            r#""\udc00""#,
            r#""\uDBFFx""#,
            r#""\ud800\n""#,
            r#""\ud800\ud800""#,
            r#""\ud83d\u0041""#,
            r#""\ude00\ud83d""#,
            r#""\ud83d\ude00\ude00""#,
            r#""\\\ud800""#,
            r#"{"\ud800":1}"#,
            r#"["fine", {"a": "\udfff"}]"#,
        ];
        for text in halves {
            assert!(json(text).to::<serde_json::Value>().is_err(), "a strict reader takes {text}");
            let refused = json(text).check("args", 99).expect_err(text);
            assert_eq!(refused.field, "args");
            assert!(refused.message.contains("surrogate"), "{}", refused.message);
        }
        let whole =
            [r#""\ud83d\ude00""#, r#""\uD83D\uDE00\u0041[""#, r#""\\ud800""#, r#""\u0022\ud7ff\ue000""#, r#""\"\\""#];
        for text in whole {
            json(text).to::<serde_json::Value>().expect(text);
            json(text).check("args", 99).expect(text);
        }
    }

    #[test]
    fn a_number_beyond_a_double_is_refused_wherever_it_stands() {
        let digits = "9".repeat(310);
        let beyond =
            ["1e400", "-1e400", "1E+309", "[1,2e999]", r#"{"a":1e99999999999999999999}"#, &digits, "-1.5e308000 "];
        for text in beyond {
            assert!(json(text).to::<serde_json::Value>().is_err(), "a strict reader takes {text}");
            let refused = json(text).check("result", 999).expect_err(text);
            assert_eq!(refused.field, "result");
            assert!(refused.message.contains("numbers"), "{}", refused.message);
        }
        let (long, fraction) = ("1".repeat(308), format!("0.{}", "1".repeat(400)));
        let within = ["1e308", "-1.5E+300", "1e-400", "0e400", "[0,-0,1.25]", r#"{"1e400":"1e400"}"#, &long, &fraction];
        for text in within {
            json(text).to::<serde_json::Value>().expect(text);
            json(text).check("result", 999).expect(text);
        }
    }

    #[test]
    fn the_text_is_kept_as_it_was_sent() {
        let text = r#"{"n": 1.0, "big": 123456789012345678901234567890}"#;
        assert_eq!(serde_json::to_string(&json(text)).expect("serialises"), text);
    }

    #[test]
    fn what_is_no_single_value_is_refused() {
        for text in ["", " ", "{", "[1,]", "nul", "1 2", "{'a':1}", "\"\u{1}\"", "NaN", "01"] {
            assert!(Json::parse(text.into()).is_err(), "{text:?}");
        }
    }

    #[test]
    fn what_is_too_large_is_refused_as_such() {
        let text = format!("\"{}\"", "x".repeat(98));
        assert_eq!(json(&text).check("result", 100), Ok(()));
        let refused = json(&text).check("result", 99).expect_err("too large");
        assert_eq!((refused.field.as_str(), refused.kind), ("result", crate::error::InvalidKind::TooLarge));
    }

    #[test]
    fn nesting_that_would_overflow_a_stack_is_measured_without_one() {
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        assert!(json(&deep).check("args", usize::MAX).is_err());
        #[derive(Deserialize)]
        struct Body {
            args: Json,
        }
        let body: Body = serde_json::from_str(&format!(r#"{{"args":{deep}}}"#)).expect("carried, not parsed");
        assert!(body.args.check("args", usize::MAX).is_err());
    }

    #[test]
    fn a_value_goes_in_and_comes_out() {
        let value = vec![(1, "a".to_string())];
        assert_eq!(Json::of(&value).expect("serialises").to::<Vec<(i32, String)>>().expect("reads"), value);
        assert!(Json::default().is_null() && !json("[null]").is_null());
        assert!(json("1").to::<String>().is_err());
    }
}
