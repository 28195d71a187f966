//! JSON by the interface: an object is an object, and a choice is a string.
//!
//! The derived parser of a struct also accepts an array of its fields in order, and that of an enum an object with one
//! key. Both would be unintended interfaces: `[null,"t"]` would be a job, and would become another one if a field is
//! added. So requests are parsed through this module: a struct is requested as a map and a choice as a string, at any
//! depth. Valid requests cost nothing more, since only the requested types differ.

use std::fmt;

use serde::de::value::StrDeserializer;
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, SeqAccess, Visitor};

/// Wraps a deserializer and everything that it passes on: visitors, seeds, and their values in turn.
pub struct Strict<T>(pub T);

/// Methods that are passed on unchanged.
macro_rules! passed_on {
    ($($ask:ident($($given:ident: $kind:ty),*))*) => {
        $(fn $ask<V: Visitor<'de>>(self, $($given: $kind,)* visitor: V) -> Result<V::Value, D::Error> {
            self.0.$ask($($given,)* Strict(visitor))
        })*
    };
}

impl<'de, D: Deserializer<'de>> Deserializer<'de> for Strict<D> {
    type Error = D::Error;

    passed_on! {
        deserialize_any() deserialize_bool()
        deserialize_i8() deserialize_i16() deserialize_i32() deserialize_i64() deserialize_i128()
        deserialize_u8() deserialize_u16() deserialize_u32() deserialize_u64() deserialize_u128()
        deserialize_f32() deserialize_f64()
        deserialize_char() deserialize_str() deserialize_string() deserialize_bytes() deserialize_byte_buf()
        deserialize_option() deserialize_unit() deserialize_unit_struct(name: &'static str)
        deserialize_newtype_struct(name: &'static str)
        deserialize_seq() deserialize_tuple(len: usize) deserialize_tuple_struct(name: &'static str, len: usize)
        deserialize_map() deserialize_identifier() deserialize_ignored_any()
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_map(Strict(visitor))
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.0.deserialize_str(ChoiceName(visitor))
    }

    fn is_human_readable(&self) -> bool {
        self.0.is_human_readable()
    }
}

/// Takes a string as the name of a choice.
struct ChoiceName<V>(V);

impl<'de, V: Visitor<'de>> Visitor<'de> for ChoiceName<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a string")
    }

    fn visit_str<E: Error>(self, word: &str) -> Result<V::Value, E> {
        self.0.visit_enum(StrDeserializer::new(word))
    }
}

/// Values that contain no others are passed on unchanged.
macro_rules! forwarded {
    ($($forward:ident($kind:ty))*) => {
        $(fn $forward<E: Error>(self, value: $kind) -> Result<V::Value, E> {
            self.0.$forward(value)
        })*
    };
}

impl<'de, V: Visitor<'de>> Visitor<'de> for Strict<V> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.expecting(f)
    }

    forwarded! {
        visit_bool(bool)
        visit_i8(i8) visit_i16(i16) visit_i32(i32) visit_i64(i64) visit_i128(i128)
        visit_u8(u8) visit_u16(u16) visit_u32(u32) visit_u64(u64) visit_u128(u128)
        visit_f32(f32) visit_f64(f64)
        visit_char(char) visit_str(&str) visit_borrowed_str(&'de str) visit_string(String)
        visit_bytes(&[u8]) visit_borrowed_bytes(&'de [u8]) visit_byte_buf(Vec<u8>)
    }

    fn visit_none<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_none()
    }

    fn visit_unit<E: Error>(self) -> Result<V::Value, E> {
        self.0.visit_unit()
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_some(Strict(deserializer))
    }

    fn visit_newtype_struct<D: Deserializer<'de>>(self, deserializer: D) -> Result<V::Value, D::Error> {
        self.0.visit_newtype_struct(Strict(deserializer))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<V::Value, A::Error> {
        self.0.visit_seq(Strict(seq))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.0.visit_map(Strict(map))
    }
}

impl<'de, S: DeserializeSeed<'de>> DeserializeSeed<'de> for Strict<S> {
    type Value = S::Value;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<S::Value, D::Error> {
        self.0.deserialize(Strict(deserializer))
    }
}

impl<'de, A: SeqAccess<'de>> SeqAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_element_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_element_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

impl<'de, A: MapAccess<'de>> MapAccess<'de> for Strict<A> {
    type Error = A::Error;

    fn next_key_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<Option<S::Value>, A::Error> {
        self.0.next_key_seed(Strict(seed))
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.0.next_value_seed(Strict(seed))
    }

    fn size_hint(&self) -> Option<usize> {
        self.0.size_hint()
    }
}

#[cfg(test)]
mod tests {
    use serde::de::DeserializeOwned;

    use super::*;
    use crate::jobs::link::Report;
    use crate::jobs::{JobSpec, Priority};

    fn read<T: DeserializeOwned>(text: &str) -> Result<T, String> {
        let mut parser = serde_json::Deserializer::from_str(text);
        T::deserialize(Strict(&mut parser)).map_err(|error| error.to_string())
    }

    #[test]
    fn what_is_honest_is_read_as_ever() {
        let text = r#"{"type":"t","priority":"high","args":{"a":[1,{"b":2.0}]},"timeout":"1s","maxRetries":2,
            "retryPolicy":{"initialDelay":"1s","multiplier":3}}"#;
        let spec: JobSpec = read(text).expect("a job");
        assert_eq!(spec.template.priority, Some(Priority::High));
        assert_eq!(spec.template.args.expect("arguments").as_str(), r#"{"a":[1,{"b":2.0}]}"#, "carried as it was sent");
        let policy = spec.template.retry_policy.expect("a policy");
        assert_eq!((policy.multiplier, policy.initial_delay.as_secs()), (3.0, 1));
    }

    #[test]
    fn an_array_is_no_object_at_any_depth() {
        for text in [r#"[null,"t"]"#, "[]", r#"{"type":"t","retryPolicy":[]}"#, r#"{"type":"t","retryPolicy":["1s"]}"#]
        {
            let error = read::<JobSpec>(text).expect_err(text);
            assert!(error.contains("sequence"), "{text}: {error}");
        }
        assert!(read::<Vec<JobSpec>>(r#"[{"type":"t"},[null,"t"]]"#).is_err());
        assert!(read::<Report>(r#"{"workerId":"w","events":[["0198c5f2-0000-7000-8000-000000000000"]]}"#).is_err());
    }

    #[test]
    fn a_choice_is_a_string_and_nothing_else() {
        for value in ["7", "null", "[]", r#"{"high":null}"#, r#"["high"]"#] {
            assert!(read::<Priority>(value).is_err(), "{value}");
        }
        assert!(read::<Priority>("\"urgent\"").expect_err("unknown").contains("urgent"));
        assert_eq!(read::<Option<Priority>>("null"), Ok(None));
    }
}
