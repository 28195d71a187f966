//! The sections of the configuration.
//!
//! A section is one struct. The rules and the runtime read it, applications pass it to the `convoke` crate, and the
//! binary reads it from its configuration; nothing copies it field by field. A field is a key; its default is written
//! beside it.

use std::fmt;
use std::ops::Deref;

use serde::{Deserialize, Serialize};

/// Declares sections: structs whose `Default` has the default of each key.
///
/// An absent key gets its default; an unknown key is rejected by name. A field with `#[serde(skip)]` is no key: only
/// code can set it. Durations need `#[serde(with = "duration")]`: they are read and written as text such as `"30s"`.
#[macro_export]
macro_rules! sections {
    ($($(#[$attribute:meta])* $name:ident {
        $($(#[$field_attribute:meta])* $field:ident: $kind:ty = $default:expr),* $(,)?
    })*) => {
        $(
            $(#[$attribute])*
            #[derive(Debug, Clone, PartialEq, ::serde::Serialize, ::serde::Deserialize)]
            #[serde(default, deny_unknown_fields)]
            pub struct $name { $($(#[$field_attribute])* pub $field: $kind,)* }

            impl Default for $name {
                fn default() -> Self {
                    $name { $($field: $default,)* }
                }
            }
        )*
    };
}

/// Text that may contain a password, such as the URL of a backend. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Secret(String);

impl Deref for Secret {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for Secret {
    fn from(text: T) -> Self {
        Secret(text.into())
    }
}

impl PartialEq<&str> for Secret {
    fn eq(&self, other: &&str) -> bool {
        self.0 == *other
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("…")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    sections! {
        Sample {
            url: Secret = "memory:".into(),
            count: u32 = 3,
            #[serde(skip)]
            hidden: u32 = 7,
        }
    }

    #[test]
    fn a_key_has_its_default_and_an_unknown_one_is_rejected_by_its_name() {
        let read = |text: &str| serde_json::from_str::<Sample>(text);
        assert_eq!(read("{}").expect("reads"), Sample::default());
        let set = read(r#"{"url":"redis://:hush@host"}"#).expect("reads");
        assert_eq!((&*set.url, set.count, set.hidden), ("redis://:hush@host", 3, 7));
        assert!(!format!("{set:?}").contains("hush"));
        for unknown in ["hidden", "cuont"] {
            let error = read(&format!(r#"{{"{unknown}":1}}"#)).expect_err(unknown).to_string();
            assert!(error.contains(unknown) && error.contains("`url`"), "{error}");
        }
        assert_eq!(serde_json::to_string(&Sample::default()).expect("serialises"), r#"{"url":"memory:","count":3}"#);
    }
}
