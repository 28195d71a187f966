//! `docs/protocol.md` against the types that the nodes read.

use std::collections::BTreeMap;
use std::fmt;
use std::path::Path;

use convoke_core::jobs::{JobSpec, RunInput, wire};
use serde::de::{DeserializeOwned, Visitor};
use serde_json::{Map, Value};

/// Records the fields that a type asks for, and fails.
struct Fields<'a>(&'a mut &'static [&'static str]);

#[derive(Debug)]
struct Stopped;

impl fmt::Display for Stopped {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("stopped")
    }
}

impl std::error::Error for Stopped {}

impl serde::de::Error for Stopped {
    fn custom<T: fmt::Display>(_: T) -> Self {
        Stopped
    }
}

impl<'de> serde::Deserializer<'de> for Fields<'_> {
    type Error = Stopped;

    fn deserialize_any<V: Visitor<'de>>(self, _: V) -> Result<V::Value, Stopped> {
        Err(Stopped)
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        _: &'static str,
        fields: &'static [&'static str],
        _: V,
    ) -> Result<V::Value, Stopped> {
        *self.0 = fields;
        Err(Stopped)
    }

    serde::forward_to_deserialize_any! {
        bool i8 i16 i32 i64 i128 u8 u16 u32 u64 u128 f32 f64 char str string bytes byte_buf option unit unit_struct
        newtype_struct seq tuple tuple_struct map enum identifier ignored_any
    }
}

fn fields<T: DeserializeOwned>() -> Vec<String> {
    let mut found: &'static [&'static str] = &[];
    let _ = T::deserialize(Fields(&mut found));
    assert!(!found.is_empty(), "{} has no fields", std::any::type_name::<T>());
    found.iter().map(|field| (*field).to_owned()).collect()
}

/// The fields of a dispatch: the input of the run, and its own.
fn dispatch_fields() -> Vec<String> {
    let mut own: &'static [&'static str] = &[];
    let _ = wire::Dispatch::deserialize(Fields(&mut own));
    fields::<RunInput>().into_iter().chain(own.iter().map(|field| (*field).to_owned())).collect()
}

/// The fields of a job specification, as it names them to whoever sends another.
fn spec_fields() -> Vec<String> {
    let error = serde_json::from_str::<JobSpec>(r#"{"?":1}"#).expect_err("an unknown field").to_string();
    let (_, known) = error.split_once("expected one of ").expect("the known ones");
    known.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

/// One message of the page: its example, and its fields with whether each is required.
struct Documented {
    example: Map<String, Value>,
    fields: BTreeMap<String, bool>,
}

/// The sections under "Messages", by their titles.
fn messages() -> BTreeMap<String, Documented> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/protocol.md");
    let page = std::fs::read_to_string(path).expect("the page");
    let (_, messages) = page.split_once("\n## Messages\n").expect("a section of messages");
    let sections = messages.split("\n### ").skip(1).map(|section| {
        let (title, text) = section.split_once('\n').expect("a title");
        let (_, example) = text.split_once("```json\n").expect("an example");
        let example = example.split("```").next().unwrap_or_default();
        let rows = text.lines().filter_map(|line| {
            let cells: Vec<&str> = line.strip_prefix("| `")?.split('|').map(str::trim).collect();
            let required = match cells[1] {
                "yes" => true,
                "no" => false,
                other => panic!("{title}: {line}: expected yes or no, got {other}"),
            };
            Some((cells[0].trim_end_matches('`').to_owned(), required))
        });
        let example = serde_json::from_str(example).unwrap_or_else(|error| panic!("{title}: {error}"));
        (title.to_owned(), Documented { example, fields: rows.collect() })
    });
    sections.collect()
}

fn in_pascal_case(name: &str) -> String {
    if name == "v" { name.to_owned() } else { name[..1].to_uppercase() + &name[1..] }
}

/// The page has exactly the type's fields, its example is read, and a field is required if and only if it cannot be left out.
fn check<T: DeserializeOwned>(messages: &mut BTreeMap<String, Documented>, title: &str, mut expected: Vec<String>) {
    let message = messages.remove(title).unwrap_or_else(|| panic!("{title} is not documented"));
    // Second names, which the page has in one sentence for all messages.
    expected.retain(|name| !name.starts_with(|first: char| first.is_uppercase()));
    expected.sort();
    let documented: Vec<String> = message.fields.keys().cloned().collect();
    assert_eq!(documented, expected, "fields of {title}");
    let read = |example: &Map<String, Value>| serde_json::from_value::<T>(Value::Object(example.clone())).map(drop);
    read(&message.example).unwrap_or_else(|error| panic!("the example of {title}: {error}"));
    // Nobody but nodes write poison.
    if title != "poison" {
        let pascal = message.example.iter().map(|(name, value)| (in_pascal_case(name), value.clone())).collect();
        read(&pascal).unwrap_or_else(|error| panic!("the example of {title} in PascalCase: {error}"));
    }
    for (field, required) in message.fields {
        let mut without = message.example.clone();
        without.remove(&field);
        assert_eq!(read(&without).is_err(), required, "{title}: is {field} required?");
    }
}

#[test]
fn every_message_of_the_bus_is_documented_as_it_is_read() {
    let mut messages = messages();
    let m = &mut messages;
    // An enqueue is a job specification and a version.
    check::<wire::Enqueue>(m, "enqueue", spec_fields().into_iter().chain(["v".into()]).collect());
    check::<wire::Dispatch>(m, "dispatch", dispatch_fields());
    check::<wire::StatusMessage>(m, "status", fields::<wire::StatusMessage>());
    check::<wire::LogMessage>(m, "logs", fields::<wire::LogMessage>());
    check::<wire::Bell>(m, "bell", fields::<wire::Bell>());
    check::<wire::Cancel>(m, "cancel", fields::<wire::Cancel>());
    check::<wire::WorkerHeartbeat>(m, "worker heartbeat", fields::<wire::WorkerHeartbeat>());
    check::<wire::CoordinatorHeartbeat>(m, "coordinator heartbeat", fields::<wire::CoordinatorHeartbeat>());
    check::<wire::Assigned>(m, "assigned", fields::<wire::Assigned>());
    check::<wire::Handoff>(m, "handoff", fields::<wire::Handoff>());
    check::<wire::HandoffAck>(m, "handoff acknowledgement", fields::<wire::HandoffAck>());
    check::<wire::Poison>(m, "poison", fields::<wire::Poison>());
    let unknown: Vec<&String> = messages.keys().collect();
    assert!(unknown.is_empty(), "documented, but not a message: {unknown:?}");
}
