//! Messages in the shapes that other programs send: keys in PascalCase, and those of Orchestrix.

use super::*;

/// Returns the message with all keys but `v` in PascalCase.
fn pascal(text: &str) -> String {
    let Ok(serde_json::Value::Object(fields)) = serde_json::from_str(text) else { panic!("{text} is no object") };
    let name = |name: String| if name == "v" { name } else { name[..1].to_uppercase() + &name[1..] };
    let fields: serde_json::Map<_, _> = fields.into_iter().map(|(key, value)| (name(key), value)).collect();
    serde_json::Value::Object(fields).to_string()
}

#[test]
fn what_others_send_is_also_read_in_pascal_case() {
    fn reads<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(message: T) {
        let text = String::from_utf8(encode(&message).to_vec()).expect("UTF-8");
        let text = pascal(&text);
        assert_eq!(serde_json::from_str::<T>(&text).unwrap_or_else(|error| panic!("{text}: {error}")), message);
        let history = text.replace("ExecutionId", "HistoryId").replace(r#""At""#, r#""Timestamp""#);
        assert_eq!(serde_json::from_str::<T>(&history).unwrap_or_else(|error| panic!("{history}: {error}")), message);
    }
    let text = Some("x".to_owned());
    let result = Some(Json::parse("7".into()).expect("valid JSON"));
    let args = Json::parse("[7]".into()).expect("valid JSON");
    reads(Dispatch { input: RunInput { correlation_id: text.clone(), args, ..dispatch().input }, ..dispatch() });
    let (percent, retry) = (Some(4), Some(true));
    reads(StatusMessage {
        started_at: Some(at()),
        percent,
        result,
        retry,
        message: text.clone(),
        error: text.clone(),
        ..status(StatusKind::Failed)
    });
    let (level, message) = (LogLevel::Warn, "line".into());
    reads(LogMessage { v: V1, job_id: job(), execution_id: run(), seq: 9, at: at(), level, message });
    reads(Cancel { v: V1, job_id: job(), execution_id: run(), reason: text });
    reads(Bell { v: V1, jobs: vec![job()], logs: Some(vec![job()]) });
    let both: WorkerHeartbeat = serde_json::from_str(&format!(
        r#"{{"workerId":"w","queues":["q"],"running":1,"free":2,"state":"Draining","at":"{AT}","name":"n","concurrency":3,"via":"n-1","executions":["{RUN}"]}}"#
    ))
    .expect("a heartbeat");
    assert_eq!(both.state, WorkerState::Draining);
    reads(both);
}

#[test]
fn keys_in_pascal_case_do_not_let_garbage_pass() {
    for (text, complaint) in [
        (format!(r#"{{"jobId":"{JOB}","JobId":"{JOB}","newOwner":"n"}}"#), "duplicate field `jobId`"),
        (format!(r#"{{"JOBID":"{JOB}","NewOwner":"n"}}"#), "missing field `jobId`"),
        (format!(r#"{{"JobId":"{JOB}"}}"#), "missing field `newOwner`"),
        (format!(r#"{{"JobId":"{JOB}","NewOwner":7}}"#), "invalid type"),
    ] {
        let error = serde_json::from_str::<HandoffAck>(&text).expect_err(&text).to_string();
        assert!(error.contains(complaint), "{error}");
    }
    for (text, complaint) in [
        (format!(r#"{{"Id":"{JOB}","id":"{JOB}","Type":"t"}}"#), "duplicate field `id`"),
        (format!(r#"{{"Id":"{JOB}","Type":"t","Queu":"q"}}"#), "unknown field `queu`"),
        (format!(r#"{{"Id":"{JOB}"}}"#), "missing field `type`"),
    ] {
        let error = serde_json::from_str::<Enqueue>(&text).expect_err(&text).to_string();
        assert!(error.contains(complaint), "{error}");
    }
    let text = format!(r#"{{"Id":"{JOB}","JobType":"t","Queue":"q","MaxRetries":2,"ScheduledAt":"{AT}"}}"#);
    let spec = serde_json::from_str::<Enqueue>(&text).expect("an enqueue").spec;
    assert_eq!(
        (spec.id, spec.template.job_type.as_str(), spec.template.max_retries, spec.run_at),
        (Some(job()), "t", Some(2), Some(at()))
    );
}

#[test]
fn a_worker_heartbeat_needs_an_id_and_queues_only() {
    let read = |text: &str| serde_json::from_str::<WorkerHeartbeat>(text).expect("a heartbeat");
    let heartbeat = read(r#"{"workerId":"w-1","queues":["email"]}"#);
    assert_eq!(
        (heartbeat.running, heartbeat.free, heartbeat.slots(), heartbeat.state),
        (0, 10, 10, WorkerState::Active)
    );
    assert_eq!((heartbeat.at, heartbeat.executions), (heartbeat::unknown_time(), None), "its runs were not reported");
    let heartbeat = read(r#"{"WorkerId":"w-1","Queues":["email"],"Concurrency":4,"Running":1}"#);
    assert_eq!((heartbeat.running, heartbeat.free, heartbeat.executions), (1, 3, None));
    let heartbeat = read(&format!(r#"{{"workerId":"w-1","queues":[],"executions":["{RUN}"],"concurrency":4}}"#));
    assert_eq!((heartbeat.running, heartbeat.free, heartbeat.executions), (1, 3, Some(vec![run()])));
    let heartbeat = read(r#"{"workerId":"w-1","queues":[],"running":0}"#);
    assert_eq!((heartbeat.executions, heartbeat.free), (Some(vec![]), 10), "it reports that it runs nothing");
    for missing in [r#"{"queues":["email"]}"#, r#"{"workerId":"w-1"}"#, r#"{"workerId":"","queues":[]}"#] {
        serde_json::from_str::<WorkerHeartbeat>(missing).expect_err(missing);
    }
}

#[test]
fn what_nodes_say_is_read_and_written_in_the_shape_of_orchestrix() {
    let (job_id, execution_id) = (job(), run());
    let written = |bytes: Bytes| String::from_utf8(bytes.to_vec()).expect("UTF-8");
    let is_json = |text: &str, expected: &str| {
        let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).expect("JSON");
        assert_eq!(value(text), value(expected));
    };
    let orchestrix = seed::Format::Orchestrix;

    let assigned = Assigned { v: V1, epoch: Epoch(7), jobs: vec![RunRef { job_id, execution_id }; 2] };
    let entries = orchestrix.encode_assigned(&assigned);
    assert_eq!(entries.len(), 2, "an entry for each run");
    let text = written(entries[0].clone());
    is_json(&text, &format!(r#"{{"JobId":"{JOB}","HistoryId":"{RUN}","Epoch":7}}"#));
    let one = Assigned { jobs: vec![RunRef { job_id, execution_id }], ..assigned };
    assert_eq!(serde_json::from_str::<Assigned>(&text).expect("reads"), one);
    let least = format!(r#"{{"JobId":"{JOB}","HistoryId":"{RUN}"}}"#);
    assert_eq!(serde_json::from_str::<Assigned>(&least).expect("reads"), Assigned { epoch: Epoch(0), ..one });
    for (wrong, complaint) in [
        (format!(r#"{{"JobId":"{JOB}"}}"#), "missing field `executionId`"),
        (format!(r#"{{"HistoryId":"{RUN}"}}"#), "missing field `jobId`"),
        ("{}".into(), "missing field `jobs`"),
        (format!(r#"{{"JobId":"{JOB}","HistoryId":"{RUN}","jobs":[]}}"#), "got both"),
    ] {
        let error = serde_json::from_str::<Assigned>(&wrong).expect_err(&wrong).to_string();
        assert!(error.contains(complaint), "{error}");
    }

    for (reason, name) in [(HandoffReason::Shutdown, "Shutdown"), (HandoffReason::NodeCrash, "NodeCrash")] {
        let least = format!(r#"{{"JobId":"{JOB}","Reason":"{name}"}}"#);
        let foreign = Handoff { v: V1, job_id, execution_id: None, from_node: None, reason, tries: 0 };
        assert_eq!(serde_json::from_str::<Handoff>(&least).expect("reads"), foreign);
        let own = Handoff { execution_id: Some(execution_id), from_node: Some(node("n-1")), tries: 1, ..foreign };
        let text = written(orchestrix.encode(&own));
        let expected = r#"{"JobId":"JOB","HistoryId":"RUN","FromNode":"n-1","Reason":"NAME","Tries":1}"#;
        is_json(&text, &expected.replace("JOB", JOB).replace("RUN", RUN).replace("NAME", name));
        assert_eq!(serde_json::from_str::<Handoff>(&text).expect("reads"), own);
    }

    let ack = HandoffAck { v: V1, job_id, new_owner: node("n-2") };
    let text = written(orchestrix.encode(&ack));
    is_json(&text, &format!(r#"{{"JobId":"{JOB}","NewOwner":"n-2"}}"#));
    assert_eq!(serde_json::from_str::<HandoffAck>(&text).expect("reads"), ack);

    let least = format!(r#"{{"NodeId":"coord-1","JobCount":50,"Timestamp":"{AT}"}}"#);
    let heartbeat = serde_json::from_str::<CoordinatorHeartbeat>(&least).expect("reads");
    assert_eq!(
        (heartbeat.node_id.as_str(), heartbeat.job_count, heartbeat.at, heartbeat.role),
        ("coord-1", 50, at(), None)
    );
    let interval = Some(Duration::from_secs(10));
    let own = CoordinatorHeartbeat { role: Some(NodeRole::Leader), worker_heartbeat_interval: interval, ..heartbeat };
    let text = written(orchestrix.encode(&own));
    let expected = r#"{"NodeId":"coord-1","JobCount":50,"State":"Active","Role":"Leader","Epoch":0,"Timestamp":"AT","WorkerHeartbeatInterval":"10s"}"#;
    is_json(&text, &expected.replace("AT\"", &format!("{AT}\"")));
    assert_eq!(serde_json::from_str::<CoordinatorHeartbeat>(&text).expect("reads"), own);
    assert_eq!(written(seed::Format::Convoke.encode(&ack)), written(encode(&ack)));
}
