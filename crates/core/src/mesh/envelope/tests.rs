use proptest::prelude::*;

use super::*;
use crate::mesh::Calls;

fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.into()).expect("JSON")
}

fn parse(text: &str) -> Result<Envelope<'_>, Malformed> {
    Envelope::parse(text.as_bytes())
}

fn new_id() -> RequestId {
    Calls::new(9).open(Duration::from_secs(1), Duration::ZERO, ())
}

fn heading<'a>(epoch: Option<u64>, trace: Option<TraceParent>) -> Heading<'a> {
    let timeout = Duration::from_secs(10);
    Heading { sender: InstanceId(2), kind: "getStatus", timeout, epoch: epoch.map(Epoch), trace }
}

#[test]
fn a_request_has_the_existing_systems_fields_and_no_others() {
    let id = new_id();
    let sent = encode_request(id, &heading(None, None), &raw(r#"{"verbose":true}"#));
    let expected = format!(
        r#"{{"requestId":"{id}","senderInstanceId":2,"type":"getStatus","data":{{"verbose":true}},"timeoutMs":10000}}"#
    );
    assert_eq!(String::from_utf8(sent).expect("text"), expected);
}

#[test]
fn a_request_is_read_as_it_was_sent() {
    let (id, trace) = (new_id(), TraceParent::new(5, 6));
    let sent = encode_request(id, &heading(Some(7), Some(trace)), &raw("[1, 2]"));
    let Ok(Envelope::Request(request)) = Envelope::parse(&sent) else { panic!("a request") };
    assert_eq!(RequestId::parse(&request.id), Some(id));
    assert_eq!((request.sender, &*request.kind, request.data), (InstanceId(2), "getStatus", "[1, 2]"));
    assert_eq!((request.timeout, request.epoch), (Some(Duration::from_secs(10)), Some(Epoch(7))));
    assert_eq!(request.trace, Some(trace));
}

#[test]
fn replies_heartbeats_and_broadcasts_have_exactly_these_fields() {
    let text = |bytes| String::from_utf8(bytes).expect("text");
    assert_eq!(text(encode_reply("a", &raw("1"))), r#"{"requestId":"a","reply":true,"data":1}"#);
    assert_eq!(text(encode_refusal("a", "no")), r#"{"requestId":"a","reply":true,"error":"no"}"#);
    assert_eq!(text(encode_heartbeat("a")), r#"{"requestId":"a","heartbeat":true}"#);
    assert_eq!(
        text(encode_broadcast(InstanceId(3), "clear", &raw("{}"))),
        r#"{"broadcast":true,"senderInstanceId":3,"type":"clear","data":{}}"#
    );
}

#[test]
fn a_reply_without_data_is_null_and_one_with_an_error_is_an_error() {
    let id = || Cow::Borrowed("a");
    let reply = |outcome| Ok(Envelope::Reply { id: id(), outcome });
    assert_eq!(parse(r#"{"requestId":"a","reply":true}"#), reply(Ok("null")));
    assert_eq!(parse(r#"{"requestId":"a","reply":true,"data":null,"more":[1]}"#), reply(Ok("null")));
    assert_eq!(parse(r#"{"requestId":"a","reply":true,"data":{"x": 1}}"#), reply(Ok(r#"{"x": 1}"#)));
    assert_eq!(parse(r#"{"requestId":"a","reply":true,"error":"n\u006f"}"#), reply(Err("no".into())));
    assert_eq!(parse(r#"{"requestId":"a","reply":true,"error":{"m":1}}"#), reply(Err(r#"{"m":1}"#.into())));
    assert_eq!(parse(r#"{"requestId":"a","reply":true,"error":"\ud800"}"#), reply(Err(r#""\ud800""#.into())));
    assert_eq!(parse(r#"{"requestId":"a","heartbeat":true}"#), Ok(Envelope::Heartbeat { id: id() }));
}

#[test]
fn a_request_may_lack_data_and_timeout_and_bring_strange_extras() {
    let text = r#"{"requestId":"x1","senderInstanceId":4,"type":"t","epoch":"soon","traceparent":[3],"reply":false}"#;
    let Ok(Envelope::Request(request)) = parse(text) else { panic!("a request") };
    assert_eq!((request.data, request.timeout, request.epoch, request.trace), ("null", None, None, None));
    let text = r#"{"requestId":"x1","senderInstanceId":4,"type":"t","timeoutMs":0.25}"#;
    let Ok(Envelope::Request(request)) = parse(text) else { panic!("a request") };
    assert_eq!(request.timeout, Some(TIMEOUT_MIN));
    let text = r#"{"requestId":"x1","senderInstanceId":4,"type":"t","timeoutMs":1e300}"#;
    let Ok(Envelope::Request(request)) = parse(text) else { panic!("a request") };
    assert_eq!(request.timeout, Some(TIMEOUT_MAX));
}

#[test]
fn what_is_none_of_these_is_malformed() {
    let long = format!(r#"{{"requestId":"a","senderInstanceId":1,"type":"{}"}}"#, "x".repeat(256));
    let malformed = [
        "",
        "null",
        "[]",
        "{}",
        "\"text\"",
        "{\"requestId\":\"a\"",
        r#"{"requestId":7,"reply":true}"#,
        r#"{"reply":true}"#,
        r#"{"heartbeat":true}"#,
        r#"{"requestId":"","reply":true}"#,
        r#"{"requestId":"a","reply":"yes"}"#,
        r#"{"requestId":"a","reply":true,"heartbeat":true}"#,
        r#"{"requestId":"a","reply":true,"reply":true}"#,
        r#"{"requestId":"a","senderInstanceId":1}"#,
        r#"{"requestId":"a","type":"t"}"#,
        r#"{"requestId":"a","senderInstanceId":0,"type":"t"}"#,
        r#"{"requestId":"a","senderInstanceId":-1,"type":"t"}"#,
        r#"{"requestId":"a","senderInstanceId":1.5,"type":"t"}"#,
        r#"{"requestId":"a","senderInstanceId":"1","type":"t"}"#,
        r#"{"requestId":"a","senderInstanceId":1,"type":""}"#,
        r#"{"requestId":"a","senderInstanceId":1,"type":"t","timeoutMs":0}"#,
        r#"{"requestId":"a","senderInstanceId":1,"type":"t","timeoutMs":-5}"#,
        r#"{"requestId":"a","senderInstanceId":1,"type":"t","timeoutMs":"1"}"#,
        r#"{"broadcast":true,"type":"t"}"#,
        r#"{"broadcast":true,"senderInstanceId":1}"#,
        &long,
    ];
    for text in malformed {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(Envelope::parse(b"{\"requestId\":\"\xff\",\"reply\":true}").is_err());
    assert!(Envelope::parse(b"{\"requestId\":\"a\",\"reply\":true,\"data\":\"\xff\"}").is_err());
    let huge = vec![b' '; MESSAGE_BYTES_MAX + 1];
    assert_eq!(Envelope::parse(&huge), Err(Malformed::TooLong(MESSAGE_BYTES_MAX + 1)));
}

#[test]
fn data_that_nests_without_end_is_carried_and_not_descended_into() {
    let deep = format!("{}{}", "[".repeat(500_000), "]".repeat(500_000));
    let text = format!(r#"{{"requestId":"a","reply":true,"data":{deep}}}"#);
    let Ok(Envelope::Reply { outcome: Ok(data), .. }) = parse(&text) else { panic!("a reply") };
    assert!(serde_json::from_str::<serde_json::Value>(data).is_err(), "who reads it refuses it");
}

proptest! {
    #[test]
    fn no_message_is_fatal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = Envelope::parse(&bytes);
    }

    #[test]
    fn names_of_any_characters_survive(kind in "\\PC{1,60}", id in "\\PC{1,60}") {
        let sent = encode_broadcast(InstanceId(1), &kind, RawValue::NULL);
        let Ok(Envelope::Broadcast { kind: read, .. }) = Envelope::parse(&sent) else { panic!("a broadcast") };
        prop_assert_eq!(&*read, &kind);
        let sent = encode_heartbeat(&id);
        let Ok(Envelope::Heartbeat { id: read }) = Envelope::parse(&sent) else { panic!("a heartbeat") };
        prop_assert_eq!(&*read, &id);
    }
}
