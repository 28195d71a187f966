//! The pages `docs/protocol*.md` against the types that are read and written.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::Path;

use convoke_core::jobs::{JobSpec, RunInput, link, wire};
use convoke_core::mesh::envelope::{self, Heading};
use convoke_core::mesh::{Envelope, RequestId};
use convoke_core::shards;
use serde::de::{DeserializeOwned, Visitor};
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

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

/// The same of a run, as a worker over HTTP receives it.
fn assignment_fields() -> Vec<String> {
    let mut own: &'static [&'static str] = &[];
    let _ = link::Assignment::deserialize(Fields(&mut own));
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

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The sections under "Messages" of a page, by their titles.
fn messages(path: &str) -> BTreeMap<String, Documented> {
    sections(path, "Messages")
}

/// The sections under a heading, which is the last of its page.
fn sections(path: &str, heading: &str) -> BTreeMap<String, Documented> {
    let page = read(path);
    let (_, messages) = page.split_once(&format!("\n## {heading}\n")).expect("a section of messages");
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
/// Returns the example.
fn check_fields<T: DeserializeOwned>(
    messages: &mut BTreeMap<String, Documented>,
    title: &str,
    mut expected: Vec<String>,
) -> Map<String, Value> {
    let message = messages.remove(title).unwrap_or_else(|| panic!("{title} is not documented"));
    // Second names, which the page has in one sentence for all messages.
    expected.retain(|name| !name.starts_with(|first: char| first.is_uppercase()));
    expected.sort();
    let documented: Vec<String> = message.fields.keys().cloned().collect();
    assert_eq!(documented, expected, "fields of {title}");
    read_as::<T>(&message.example).unwrap_or_else(|error| panic!("the example of {title}: {error}"));
    for (field, required) in message.fields {
        let mut without = message.example.clone();
        without.remove(&field);
        assert_eq!(read_as::<T>(&without).is_err(), required, "{title}: is {field} required?");
    }
    message.example
}

fn read_as<T: DeserializeOwned>(example: &Map<String, Value>) -> serde_json::Result<()> {
    serde_json::from_str::<T>(&Value::Object(example.clone()).to_string()).map(drop)
}

/// The same of a message of the bus, which is also read with keys in PascalCase.
fn check<T: DeserializeOwned>(messages: &mut BTreeMap<String, Documented>, title: &str, expected: Vec<String>) {
    let example = check_fields::<T>(messages, title, expected);
    // Nobody but nodes write poison.
    if title != "poison" {
        let pascal = example.into_iter().map(|(name, value)| (in_pascal_case(&name), value)).collect();
        read_as::<T>(&pascal).unwrap_or_else(|error| panic!("the example of {title} in PascalCase: {error}"));
    }
}

/// The same of a type without flattened fields.
fn check_type<T: DeserializeOwned>(messages: &mut BTreeMap<String, Documented>, title: &str) {
    check_fields::<T>(messages, title, fields::<T>());
}

#[test]
fn every_message_of_the_bus_is_documented_as_it_is_read() {
    let mut messages = messages("docs/protocol.md");
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

#[test]
fn every_message_of_the_worker_gateway_is_documented_as_it_is_read() {
    let mut messages = messages("docs/protocol-worker.md");
    let m = &mut messages;
    check_type::<link::Register>(m, "register");
    check_type::<link::Registered>(m, "register response");
    check_type::<link::Poll>(m, "poll");
    check_type::<link::Polled>(m, "poll response");
    check_fields::<link::Assignment>(m, "run", assignment_fields());
    check_type::<link::Report>(m, "report");
    check_type::<link::Event>(m, "event");
    check_type::<link::Reported>(m, "report response");
    check_type::<link::Rejected>(m, "rejected run");
    check_type::<link::Heartbeat>(m, "heartbeat");
    check_type::<link::HeartbeatReply>(m, "heartbeat response");
    // Its type is private to the route: its only field is read from the source.
    let leave = messages.remove("leave").expect("leave is documented");
    assert_eq!(leave.fields, BTreeMap::from([("workerId".to_owned(), true)]));
    assert_eq!(leave.example.keys().collect::<Vec<_>>(), ["workerId"]);
    assert!(read("crates/http/src/gateway/mod.rs").contains("struct Leave {\n    worker_id: WorkerId,\n}"));
    let unknown: Vec<&String> = messages.keys().collect();
    assert!(unknown.is_empty(), "documented, but not a message: {unknown:?}");
}

fn text(value: &Value) -> Vec<u8> {
    value.to_string().into_bytes()
}

fn value(text: &[u8]) -> Value {
    serde_json::from_slice(text).expect("JSON")
}

/// The example is read and written again as it is, and `read` rejects it without a field if and only if that is required.
/// The fields are at `place` of the example.
fn check_both_ways(title: &str, documented: Documented, place: &str, read: impl Fn(&Value) -> Option<Value>) {
    let example = Value::Object(documented.example);
    let fields = |of: &Value| of.pointer(place).and_then(Value::as_object).expect("an object").clone();
    assert_eq!(read(&example).as_ref(), Some(&example), "{title}: the example is read and written again");
    let named: BTreeSet<&String> = documented.fields.keys().collect();
    assert_eq!(named, fields(&example).keys().collect(), "fields of {title}");
    for (field, required) in &documented.fields {
        let mut without = example.clone();
        without.pointer_mut(place).and_then(Value::as_object_mut).expect("an object").remove(field);
        assert_eq!(read(&without).is_none(), *required, "{title}: is {field} required?");
    }
}

#[test]
fn every_message_of_the_shard_coordinator_is_documented_as_it_is_read() {
    let mut messages = messages("docs/protocol-shards.md");
    let encoded = |example: &Value| {
        let message = shards::wire::message(&[text(example).into()]).ok()?;
        Some(value(&message.encode()))
    };
    let decoded = |example: &Value| {
        let message = shards::wire::answer(&[text(example).into()])?;
        Some(value(&message.encode()))
    };
    let mut heartbeat = Value::Object(messages["register"].example.clone());
    heartbeat["type"] = json!("heartbeat");
    assert_eq!(encoded(&heartbeat), Some(heartbeat));
    for title in ["register", "leave", "released"] {
        let documented = messages.remove(title).unwrap_or_else(|| panic!("{title} is not documented"));
        check_both_ways(title, documented, "/data", encoded);
    }
    for title in ["assignment", "revoke", "error"] {
        let documented = messages.remove(title).unwrap_or_else(|| panic!("{title} is not documented"));
        check_both_ways(title, documented, "/data", decoded);
    }
    let unknown: Vec<&String> = messages.keys().collect();
    assert!(unknown.is_empty(), "documented, but not a message: {unknown:?}");
}

/// Reads a message of the mesh and writes it again.
fn meshed(example: &Value) -> Option<Value> {
    let message = text(example);
    let raw = |data: &str| RawValue::from_string(data.to_owned()).expect("JSON");
    let written = match Envelope::parse(&message).ok()? {
        Envelope::Request(request) => {
            let timeout = request.timeout.unwrap_or_default();
            let heading = Heading {
                sender: request.sender,
                kind: &request.kind,
                timeout,
                epoch: request.epoch,
                trace: request.trace,
            };
            envelope::encode_request(RequestId::parse(&request.id)?, &heading, &raw(request.data))
        }
        Envelope::Reply { id, outcome: Ok(data) } => envelope::encode_reply(&id, &raw(data)),
        Envelope::Reply { id, outcome: Err(error) } => envelope::encode_refusal(&id, &error),
        Envelope::Heartbeat { id } => envelope::encode_heartbeat(&id),
        Envelope::Broadcast { sender, kind, data } => envelope::encode_broadcast(sender, &kind, &raw(data)),
    };
    Some(value(&written))
}

#[test]
fn every_message_of_the_mesh_is_documented_as_it_is_read() {
    let mut messages = messages("docs/protocol-mesh.md");
    // A reply has its data or its error: the example has the one, this the other.
    let reply = messages.get_mut("reply").expect("reply is documented");
    assert_eq!(reply.fields.remove("error"), Some(false));
    let mut refusal = Value::Object(reply.example.clone());
    refusal.as_object_mut().expect("an object").remove("data");
    refusal["error"] = json!("MESH_BUSY:getStatus");
    assert_eq!(meshed(&refusal), Some(refusal));
    for title in ["request", "reply", "heartbeat", "broadcast"] {
        let documented = messages.remove(title).unwrap_or_else(|| panic!("{title} is not documented"));
        check_both_ways(title, documented, "", meshed);
    }
    let unknown: Vec<&String> = messages.keys().collect();
    assert!(unknown.is_empty(), "documented, but not a message: {unknown:?}");
}

/// The names that the fields of a struct have in JSON, from its source.
fn fields_in_source(source: &str, name: &str) -> BTreeSet<String> {
    let (_, rest) = source.split_once(&format!("struct {name}")).unwrap_or_else(|| panic!("no struct {name}"));
    let body = rest.split("\n}").next().unwrap_or_default();
    let mut renamed = None;
    let mut found = BTreeSet::new();
    for line in body.lines().map(str::trim) {
        if let Some((_, rest)) = line.split_once("rename = \"") {
            renamed = rest.split('"').next().map(str::to_owned);
        }
        let Some((field, _)) = line.strip_prefix("pub ").and_then(|line| line.split_once(':')) else { continue };
        found.insert(renamed.take().unwrap_or_else(|| in_camel_case(field)));
    }
    found
}

fn in_camel_case(field: &str) -> String {
    let mut words = field.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| name + &word[..1].to_uppercase() + &word[1..])
}

/// Their types are private to the adapter.
#[test]
fn every_object_of_an_election_on_s3_is_documented_as_it_is_written() {
    let mut documents = sections("docs/protocol-s3.md", "Documents");
    let source = read("crates/adapters/src/s3/documents.rs");
    for (title, name) in [("state", "State"), ("member", "Worker"), ("metadata", "Metadata")] {
        let documented = documents.remove(title).unwrap_or_else(|| panic!("{title} is not documented"));
        let named: BTreeSet<String> = documented.fields.keys().cloned().collect();
        assert_eq!(named, fields_in_source(&source, name), "fields of {title}");
        assert_eq!(named, documented.example.keys().cloned().collect(), "the example of {title}");
    }
    let unknown: Vec<&String> = documents.keys().collect();
    assert!(unknown.is_empty(), "documented, but not an object: {unknown:?}");
}
