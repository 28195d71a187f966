//! Reads a JSON object that holds the fields of two types side by side.
//!
//! `#[serde(flatten)]` writes such an object, but cannot read it here: it copies all values into a buffer, which loses
//! the text of raw JSON, accepts unknown fields and loses the position of an error. [`read`] passes the fields of one
//! type, `T`, directly to its derived reader, and the others to an [`Extra`].

use std::borrow::Cow;
use std::fmt;
use std::marker::PhantomData;

use serde::de::value::{MapDeserializer, StrDeserializer};
use serde::de::{DeserializeSeed, Deserializer, Error, MapAccess, Visitor};
use serde::{Deserialize, forward_to_deserialize_any};
use serde_json::value::RawValue;

/// The fields of an object that are not those of `T`.
pub trait Extra<'de>: Default {
    /// Their names; an object with any other field is rejected. `None` accepts any name.
    const FIELDS: Option<&'static [&'static str]>;

    /// Reads the value of a field.
    fn read<A: MapAccess<'de>>(&mut self, field: Cow<'de, str>, map: &mut A) -> Result<(), A::Error>;
}

/// Reads the object.
pub fn read<'de, T, X, D>(deserializer: D) -> Result<(T, X), D::Error>
where
    T: Deserialize<'de>,
    X: Extra<'de>,
    D: Deserializer<'de>,
{
    let mut extra = X::default();
    let inner = T::deserialize(Split { deserializer, extra: &mut extra, lifetime: PhantomData })?;
    Ok((inner, extra))
}

/// Reads a value into a slot that was empty before.
pub fn fill<'de, A: MapAccess<'de>, V: Deserialize<'de>>(
    slot: &mut Option<V>,
    field: &'static str,
    map: &mut A,
) -> Result<(), A::Error> {
    if slot.is_some() {
        return Err(A::Error::duplicate_field(field));
    }
    *slot = Some(map.next_value()?);
    Ok(())
}

struct Split<'x, 'de, D, X> {
    deserializer: D,
    extra: &'x mut X,
    lifetime: PhantomData<&'de ()>,
}

impl<'de, D: Deserializer<'de>, X: Extra<'de>> Deserializer<'de> for Split<'_, 'de, D, X> {
    type Error = D::Error;

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, D::Error> {
        self.deserializer.deserialize_map(Object { visitor, fields, extra: self.extra })
    }

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, D::Error> {
        Err(D::Error::custom("only a struct has fields"))
    }

    forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

struct Object<'x, V, X> {
    visitor: V,
    fields: &'static [&'static str],
    extra: &'x mut X,
}

impl<'de, V: Visitor<'de>, X: Extra<'de>> Visitor<'de> for Object<'_, V, X> {
    type Value = V::Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<V::Value, A::Error> {
        self.visitor.visit_map(Fields { map, fields: self.fields, extra: self.extra })
    }
}

struct Fields<'x, A, X> {
    map: A,
    fields: &'static [&'static str],
    extra: &'x mut X,
}

impl<'de, A: MapAccess<'de>, X: Extra<'de>> MapAccess<'de> for Fields<'_, A, X> {
    type Error = A::Error;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, A::Error> {
        while let Some(field) = self.map.next_key_seed(Known { fields: self.fields, extra: X::FIELDS })? {
            match field {
                Field::Inner(name) => return seed.deserialize(StrDeserializer::new(name)).map(Some),
                Field::Extra(name) => self.extra.read(name, &mut self.map)?,
            }
        }
        Ok(None)
    }

    fn next_value_seed<S: DeserializeSeed<'de>>(&mut self, seed: S) -> Result<S::Value, A::Error> {
        self.map.next_value_seed(seed)
    }
}

/// A field's name, borrowed from the text if it has no escapes.
#[derive(Deserialize)]
#[serde(transparent)]
struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

/// The name of a field: of `T`, or of the [`Extra`].
enum Field<'de> {
    Inner(&'static str),
    Extra(Cow<'de, str>),
}

/// Reads the name of a known field. An unknown one is rejected while it is read, so that the path of the error ends
/// with it.
struct Known {
    fields: &'static [&'static str],
    extra: Option<&'static [&'static str]>,
}

impl<'de> DeserializeSeed<'de> for Known {
    type Value = Field<'de>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Field<'de>, D::Error> {
        let Name(field) = Name::deserialize(deserializer)?;
        if let Some(name) = self.fields.iter().find(|known| **known == field) {
            return Ok(Field::Inner(name));
        }
        match self.extra {
            Some(extra) if !extra.iter().any(|known| *known == field) => {
                let known: Vec<String> = self.fields.iter().chain(extra).map(|known| format!("`{known}`")).collect();
                let message = format_args!("unknown field `{field}`, expected one of {}", known.join(", "));
                Err(D::Error::custom(message))
            }
            _ => Ok(Field::Extra(field)),
        }
    }
}

/// Fields that are read later, by a derived reader of a type of which unknown fields are ignored.
#[derive(Default)]
pub struct Rest(Vec<(String, Box<RawValue>)>);

impl<'de> Extra<'de> for Rest {
    const FIELDS: Option<&'static [&'static str]> = None;

    fn read<A: MapAccess<'de>>(&mut self, field: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        self.0.push((field.into_owned(), map.next_value()?));
        Ok(())
    }
}

impl Rest {
    /// Returns a deserializer of the fields.
    pub fn deserializer(&self) -> MapDeserializer<'_, impl Iterator<Item = (&str, &RawValue)>, serde_json::Error> {
        MapDeserializer::new(self.0.iter().map(|(field, value)| (field.as_str(), &**value)))
    }
}

/// [`Rest`] without copies, for messages that are read from their text only.
#[derive(Default)]
pub struct BorrowedRest<'de>(Vec<(Cow<'de, str>, &'de RawValue)>);

impl<'de> Extra<'de> for BorrowedRest<'de> {
    const FIELDS: Option<&'static [&'static str]> = None;

    fn read<A: MapAccess<'de>>(&mut self, field: Cow<'de, str>, map: &mut A) -> Result<(), A::Error> {
        self.0.push((field, map.next_value()?));
        Ok(())
    }
}

impl BorrowedRest<'_> {
    /// Returns a deserializer of the fields.
    pub fn deserializer(&self) -> MapDeserializer<'_, impl Iterator<Item = (&str, &RawValue)>, serde_json::Error> {
        MapDeserializer::new(self.0.iter().map(|(field, value)| (&**field, *value)))
    }
}

/// Reads and writes a type whose field `$part` stands among its other fields, which are kept as `$rest` until they are read. The type derives both with
/// `#[serde(remote = "Self")]`, and its field has `#[serde(flatten, skip_deserializing, default = …)]`.
macro_rules! flattened {
    ($name:ident, $part:ident, $rest:ident) => {
        impl serde::Serialize for $name {
            fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                $name::serialize(self, serializer)
            }
        }

        impl<'de> serde::Deserialize<'de> for $name {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let (part, rest) = $crate::flat::read::<_, $crate::flat::$rest, D>(deserializer)?;
                let whole = $name::deserialize(rest.deserializer()).map_err(serde::de::Error::custom)?;
                Ok($name { $part: part, ..whole })
            }
        }
    };
}
pub(crate) use flattened;
