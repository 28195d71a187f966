use proptest::prelude::*;
use serde_json::json;

use super::*;
use crate::jobs::retry::Jitter;

fn policies() -> impl Strategy<Value = RetryPolicy> {
    let policy = (0..10_000u64, 1.0..10.0f64, 0..10_000u64, any::<bool>());
    policy.prop_map(|(initial_ms, multiplier, more_ms, full)| RetryPolicy {
        initial_delay: Duration::from_millis(initial_ms),
        multiplier,
        max_delay: Duration::from_millis(initial_ms + more_ms),
        jitter: if full { Jitter::Full } else { Jitter::None },
    })
}

prop_compose! {
    fn templates()(
        job_type in "[a-z.]{1,20}",
        queue in prop::option::of("[a-z]{1,20}"),
        args in prop::option::of(any::<i64>()),
        priority in prop::option::of(prop::sample::select(Priority::ALL.to_vec())),
        max_retries in prop::option::of(0..=RETRIES_MAX),
        retry_policy in prop::option::of(policies()),
        timeout_ms in prop::option::of(1..10_000_000u64),
        correlation_id in prop::option::of("[^\0]{1,60}"),
        unique in prop::option::of(("[^\0]{1,60}", prop::option::of(0..10_000u64))),
        tags in prop::option::of(prop::collection::btree_set("[a-zäöü:,\\\"]{1,20}", 1..=TAGS_MAX)),
    ) -> JobTemplate {
        let (unique_key, unique_for) = unique.unzip();
        JobTemplate {
            job_type: JobType::new(job_type).expect("a name"),
            queue: queue.map(|queue| QueueName::new(queue).expect("a name")),
            args: args.map(|args| Json::of(&json!({ "a": args })).expect("JSON")),
            priority,
            max_retries,
            retry_policy,
            timeout: timeout_ms.map(Duration::from_millis),
            correlation_id,
            unique_key,
            unique_for: unique_for.flatten().map(Duration::from_millis),
            tags: tags.map(|tags| tags.into_iter().collect()),
        }
    }
}

proptest! {
    #[test]
    fn a_definition_is_read_back_from_its_document_and_its_arguments(template in templates()) {
        prop_assert_eq!(template.check(), Ok(()));
        let defaults = RetrySettings { max_retries: 7, ..RetrySettings::default() };
        let definition = template.define(&defaults);
        let read = JobDefinition::from_document(&definition.document(), definition.args.clone());
        prop_assert_eq!(read.expect("its own document"), definition);
    }

    #[test]
    fn a_template_is_read_back_from_its_json(template in templates()) {
        let text = serde_json::to_string(&template).expect("it serialises");
        prop_assert_eq!(serde_json::from_str::<JobTemplate>(&text).expect("its own text"), template);
    }
}

fn definition(fields: &str) -> JobDefinition {
    let template: JobTemplate = serde_json::from_str(&format!(r#"{{"type":"t"{fields}}}"#)).expect("a template");
    template.define(&RetrySettings::default())
}

#[test]
fn a_document_has_no_arguments_and_no_built_in_defaults() {
    assert_eq!(definition(r#","args":{"a":1}"#).document(), r#"{"v":1,"type":"t"}"#);
    assert_eq!(
        definition(r#","queue":"q","priority":"high","maxRetries":0,"timeout":"1s","uniqueKey":"u","uniqueFor":"1h""#)
            .document(),
        r#"{"v":1,"type":"t","queue":"q","priority":"high","maxRetries":0,"timeout":"1s","uniqueKey":"u"}"#
    );
}

#[test]
fn a_document_may_have_fields_of_a_newer_version_of_the_program_but_no_other_version_number() {
    let read = |document: &str| JobDefinition::from_document(document, Json::null());
    let known = read(r#"{"v":1,"type":"t","maxRetries":2}"#).expect("a document");
    assert_eq!(read(r#"{"colour":["red"],"v":1,"type":"t","maxRetries":2}"#).expect("a newer one"), known);
    for (document, reason) in [
        (r#"{"v":2,"type":"t"}"#, "expected v 1"),
        (r#"{"type":"t"}"#, "missing field `v`"),
        (r#"{"v":1}"#, "missing field `type`"),
        (r#"{"v":1,"v":1,"type":"t"}"#, "duplicate field `v`"),
        ("[]", "expected an object"),
    ] {
        let error = read(document).expect_err(document).to_string();
        assert!(error.contains(reason), "{error}");
    }
}

#[test]
fn a_job_is_found_by_its_correlation_id_and_its_tags() {
    assert_eq!(definition("").search_keys(None), [""; 0]);
    let keys = definition(r#","correlationId":"x","tags":["a","b"]"#).search_keys(None);
    assert_eq!(keys, [correlation_key("x"), tag_key("a"), tag_key("b")]);
}

#[test]
fn tags_are_few_short_and_different() {
    let check = |tags: &[&str]| {
        let tags = Some(tags.iter().map(|tag| (*tag).to_owned()).collect());
        JobTemplate { tags, ..JobTemplate::unread() }.check().map_err(|invalid| invalid.field)
    };
    let long = "x".repeat(TAG_BYTES_MAX);
    let many: Vec<String> = (0..=TAGS_MAX).map(|n| n.to_string()).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert_eq!(check(&[]), Ok(()));
    assert_eq!(check(&["a", "b c", &long, "ü"]), Ok(()));
    assert_eq!(check(&many[1..]), Ok(()));
    assert_eq!(check(&many), Err("tags".into()));
    for wrong in ["", &(long + "x"), "a\0b", "a\nb", "a"] {
        assert_eq!(check(&["a", wrong]), Err("tags[1]".into()), "{wrong:?}");
    }
}

#[test]
fn a_document_that_is_wrong_in_part_is_read_as_far_as_possible() {
    let mut documents = Documents::default();
    let text = r#"{"v":1,"type":"email.send","queue":"mail","priority":"urgent","maxRetries":7,"tags":["eu"],"x":[]}"#;
    let read = documents.read(text);
    assert!(read.error.as_deref().is_some_and(|error| error.contains("urgent")), "{:?}", read.error);
    let found = &read.definition;
    assert_eq!((found.job_type.as_str(), found.queue.as_str(), found.max_retries), ("email.send", "mail", 7));
    assert_eq!((found.priority, &found.tags), (Priority::Normal, &vec!["eu".to_owned()]));
    let newer = documents.read(r#"{"v":2,"type":"email.send"}"#);
    assert!(newer.error.is_some() && newer.definition.job_type.as_str() == "email.send");
    for text in ["", "{", "[]", "7", r#"{"v":1}"#, r#"{"v":1,"type":""}"#] {
        let read = documents.read(text);
        assert!(read.error.is_some() && read.definition.job_type.as_str() == "unreadable", "{text}");
    }
    let fine = documents.read(r#"{"v":1,"type":"t"}"#);
    assert_eq!((fine.error.as_deref(), fine.definition.job_type.as_str()), (None, "t"));
}
