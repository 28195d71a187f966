use proptest::prelude::*;

use super::*;

fn read(text: &str) -> Result<Message, Refusal> {
    message(&[Bytes::copy_from_slice(text.as_bytes())])
}

fn refusal(text: &str) -> String {
    read(text).expect_err(text).message
}

fn report() -> Report {
    Report {
        service_name: ServiceName::new("s").expect("a name"),
        worker_id: WorkerId::new("w").expect("a name"),
        max_shard_count: 10,
        assigned_shards: None,
        version: None,
        handoff: None,
        beat: None,
        instance: None,
    }
}

#[test]
fn the_original_messages_are_read_as_they_are_documented() {
    let text = r#"{"type":"register","data":{"serviceName":"s","workerId":"w","maxShardCount":10}}"#;
    assert_eq!(read(text), Ok(Message::Register(report())));
    let text =
        r#"{"type":"heartbeat","data":{"serviceName":"s","workerId":"w","maxShardCount":10,"assignedShards":[1,2]}}"#;
    let beat = Report { assigned_shards: Some(vec![1, 2]), ..report() };
    assert_eq!(read(text), Ok(Message::Heartbeat(beat)));
}

#[test]
fn an_assignment_is_what_the_original_sends_and_a_version() {
    let assignment = Assignment { assigned_shards: vec![0, 1], version: Version(7), ..Assignment::default() };
    let text = CoordinatorMessage::Assignment(assignment).encode();
    assert_eq!(&text[..], br#"{"type":"assignment","data":{"assignedShards":[0,1],"version":7}}"#);
    assert_eq!(
        &replying_to(&text, Some(9))[..],
        br#"{"type":"assignment","data":{"assignedShards":[0,1],"version":7,"beat":9}}"#
    );
    assert_eq!(replying_to(&text, None), text);
    let original = Bytes::from_static(br#"{"type":"assignment","data":{"assignedShards":[3]}}"#);
    let read = Assignment { assigned_shards: vec![3], ..Assignment::default() };
    assert_eq!(answer(&[original]), Some(CoordinatorMessage::Assignment(read)));
}

#[test]
fn what_is_added_is_read_and_what_is_unknown_passed_over() {
    let text = r#"{"type":"register","x":[{}],"data":{"serviceName":"s","workerId":"w","maxShardCount":10.0,"handoff":true,
        "assignedShards":[1,99999999,4294967297],"version":8,"beat":3,"more":{"a":1}}}"#;
    let shards = Some(vec![1]);
    let full =
        Report { handoff: Some(true), assigned_shards: shards, version: Some(Version(8)), beat: Some(3), ..report() };
    assert_eq!(read(text), Ok(Message::Register(full)));
}

#[test]
fn trailing_frames_are_passed_over() {
    let text = Bytes::from_static(br#"{"type":"leave","data":{"serviceName":"s","workerId":"w"}}"#);
    assert!(matches!(message(&[text, Bytes::from_static(b"\0junk")]), Ok(Message::Leave(_))));
}

#[test]
fn what_is_no_message_is_told_what_one_is() {
    assert!(message(&[]).expect_err("nothing").message.contains("got none"));
    assert!(message(&[Bytes::new(), Bytes::from_static(b"{}")]).expect_err("a delimiter").message.contains("DEALER"));
    for (text, part) in [
        ("nonsense", "expected JSON, got nonsense"),
        ("{\"type\":", "expected JSON"),
        ("[1]", "expected an object with type and data, got [1]"),
        ("{}", "type: expected a string, got null"),
        (r#"{"type":5,"data":{}}"#, "type: expected a string, got 5"),
        (r#"{"type":"register"}"#, "data: expected an object, got nothing"),
        (r#"{"type":"register","data":[]}"#, "data: expected an object, got []"),
        (r#"{"type":"dance","data":{}}"#, "type: expected register, heartbeat, leave or released, got \"dance\""),
    ] {
        assert!(refusal(text).contains(part), "{text}: {}", refusal(text));
    }
}

#[test]
fn a_bad_field_is_named_with_its_value_and_what_was_expected() {
    let with = |field: &str| {
        let rest = r#""serviceName":"s","workerId":"w","maxShardCount":1"#;
        // The last of a repeated name counts.
        format!(r#"{{"type":"heartbeat","data":{{{rest},{field}}}}}"#)
    };
    for (field, part) in [
        (r#""maxShardCount":-3"#, "maxShardCount: expected a whole number from 0 to 100000, got -3"),
        (r#""maxShardCount":2.5"#, "maxShardCount: expected a whole number from 0 to 100000, got 2.5"),
        (r#""maxShardCount":"4""#, "maxShardCount: expected a whole number from 0 to 100000, got \"4\""),
        (r#""maxShardCount":100001"#, "maxShardCount: expected a whole number from 0 to 100000, got 100001"),
        (r#""maxShardCount":null"#, "maxShardCount: expected a whole number from 0 to 100000, got nothing"),
        (r#""workerId":"""#, "workerId: expected a name of 1 to 255 bytes, got an empty one"),
        (r#""workerId":7"#, "workerId: expected a string, got 7"),
        (r#""serviceName":null"#, "serviceName: expected a name of 1 to 255 bytes, got nothing"),
        (r#""assignedShards":5"#, "assignedShards: expected a list of whole numbers, got 5"),
        (r#""assignedShards":[1,-1]"#, "assignedShards: expected a list of whole numbers, got -1"),
        (r#""handoff":"yes""#, "handoff: expected true or false, got \"yes\""),
        (r#""version":-1"#, "version: expected a whole number, got -1"),
    ] {
        assert_eq!(refusal(&with(field)), part);
    }
    let released = r#"{"type":"released","data":{"serviceName":"s","workerId":"w","version":1}}"#;
    assert_eq!(refusal(released), "shards: expected a list of whole numbers, got nothing");
}

#[test]
fn a_refusal_is_short_however_long_its_cause() {
    let long = format!(r#"{{"type":"{}","data":{{}}}}"#, "x".repeat(100_000));
    assert!(refusal(&long).len() < 500);
    assert!(refusal(&"ü".repeat(100_000)).len() < 500);
    let many = format!("[{}0]", "0,".repeat(SHARDS));
    let text =
        format!(r#"{{"type":"released","data":{{"serviceName":"s","workerId":"w","version":1,"shards":{many}}}}}"#);
    assert_eq!(refusal(&text), "shards: expected at most 100000 shards, got 100001");
}

const SHARDS: usize = crate::limits::SHARDS_MAX as usize;

#[test]
fn what_we_send_is_read_back() {
    let full = Report {
        assigned_shards: Some(vec![4]),
        version: Some(Version(5)),
        handoff: Some(false),
        beat: Some(6),
        ..report()
    };
    let (service_name, worker_id) = (full.service_name.clone(), full.worker_id.clone());
    let leave = Leave {
        service_name: service_name.clone(),
        worker_id: worker_id.clone(),
        version: Some(Version(1)),
        beat: Some(2),
    };
    let released = Released { service_name, worker_id, shards: vec![1], version: Version(2) };
    for sent in [
        Message::Register(report()),
        Message::Register(full.clone()),
        Message::Heartbeat(full),
        Message::Leave(leave),
        Message::Released(released),
    ] {
        assert_eq!(message(&[sent.encode()]), Ok(sent));
    }
    let timeout = Some(Duration::from_millis(1500));
    let assignment =
        Assignment { assigned_shards: vec![2], version: Version(3), heartbeat_timeout: timeout, beat: Some(4) };
    for sent in [
        CoordinatorMessage::Assignment(assignment),
        CoordinatorMessage::Revoke(Revoke { shards: vec![1], version: Version(9) }),
        CoordinatorMessage::Error(Refusal::new(Refusal::LIMIT, "no")),
    ] {
        assert_eq!(answer(&[sent.encode()]), Some(sent));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]
    #[test]
    fn garbage_is_refused_and_never_more(frames in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..3)) {
        let frames: Vec<Bytes> = frames.into_iter().map(Bytes::from).collect();
        if let Err(refusal) = message(&frames) {
            prop_assert!(refusal.message.len() < 1_000);
        }
        let _ = answer(&frames);
    }

    #[test]
    fn nearly_right_messages_are_read_or_refused(
        kind in "register|heartbeat|leave|released|other",
        service in r#""s"|""|7|null"#,
        count in r#"0|10|1e3|-1|2\.5|"4"|null|100001|1e400|\[\]"#,
        shards in r#"\[\]|\[1,2\]|\[1\.0\]|\[-1\]|\["a"\]|null|7|\[1e99\]"#,
        version in r#"0|7|9007199254740993|-1|null|"x"|1e15"#,
    ) {
        let text = format!(
            r#"{{"type":"{kind}","data":{{"serviceName":{service},"workerId":"w","maxShardCount":{count},"assignedShards":{shards},"shards":{shards},"version":{version}}}}}"#
        );
        if let Ok(Message::Register(report) | Message::Heartbeat(report)) = read(&text) {
            prop_assert!(report.max_shard_count <= crate::limits::SHARDS_MAX);
        }
    }
}
