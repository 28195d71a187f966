//! A JSON document that is carried, not looked into: a job's arguments and its result.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::error::Invalid;
use crate::limits::JSON_DEPTH_MAX;

/// Valid JSON text, kept as it was sent.
#[derive(Clone)]
pub struct Json(Box<RawValue>);

impl Json {
    pub fn null() -> Self {
        Json(RawValue::NULL.to_owned())
    }

    /// Fails where `text` is not one JSON value.
    pub fn parse(text: String) -> serde_json::Result<Self> {
        RawValue::from_string(text).map(Json)
    }

    pub fn of(value: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::value::to_raw_value(value).map(Json)
    }

    pub fn as_str(&self) -> &str {
        self.0.get()
    }

    pub fn is_null(&self) -> bool {
        self.as_str() == "null"
    }

    pub fn to<T: serde::de::DeserializeOwned>(&self) -> serde_json::Result<T> {
        serde_json::from_str(self.as_str())
    }

    /// Refuses what is larger than `bytes_max` or nested deeper than any honest document. A raw value is not descended
    /// into when it is parsed, so that without this a client could store what no reader could open.
    pub fn check(&self, field: &str, bytes_max: usize) -> Result<(), Invalid> {
        let text = self.as_str();
        if text.len() > bytes_max {
            let message = format!("expected at most {bytes_max} bytes of JSON, got {}", text.len());
            return Err(Invalid::too_large(field, message));
        }
        if depth(text.as_bytes()) > JSON_DEPTH_MAX {
            let message = format!("expected JSON nested at most {JSON_DEPTH_MAX} deep");
            return Err(Invalid::new(field, message));
        }
        Ok(())
    }
}

/// How deep arrays and objects nest in a valid JSON text.
fn depth(text: &[u8]) -> usize {
    let (mut depth, mut deepest, mut in_string, mut escaped) = (0usize, 0usize, false, false);
    for &byte in text {
        if in_string {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_string = false,
                _ => {}
            }
            continue;
        }
        match byte {
            b'"' => in_string = true,
            b'[' | b'{' => {
                depth += 1;
                deepest = deepest.max(depth);
            }
            b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    deepest
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
        assert_eq!(depth(br#"{"a":"[[[{{{\"[[","b":[1]}"#), 2);
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
        let body: Body = serde_json::from_str(&format!(r#"{{"args":{deep}}}"#)).expect("carried, not looked into");
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
