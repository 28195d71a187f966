//! The arguments, the output and the exit codes of `convoke elect`.

use convoke_testkit::process::{Program, Proxy, RedisServer, Signal, is_alive, number_in};
use serde_json::{Value, json};

use super::stage::{NAMESPACE, Stage};

const TTL: &str = "3s";
const READY: &str = "echo ready; while :; do sleep 0.02; done";

async fn is_ready(program: &mut Program) {
    program.line("that the command runs", |line| (line == "ready").then_some(())).await.expect("it runs");
}

async fn waits(program: &mut Program) {
    program
        .line("that it waits", |line| line.contains("contending for the lead").then_some(()))
        .await
        .expect("it runs");
}

#[tokio::test]
async fn the_command_knows_its_term_and_its_exit_code_is_passed_on() {
    let stage = Stage::on_sqlite(TTL);
    for (epoch, code) in [(1, 7), (2, 0)] {
        let script = format!("echo \"$CONVOKE_NAMESPACE/$CONVOKE_EPOCH\"; cat; exit {code}");
        let mut program = stage.contend("a", &[], &script);
        assert_eq!(program.wait().await.code(), Some(code), "{:?}", program.printed());
        assert!(program.printed().contains(&format!("{NAMESPACE}/{epoch}")), "{:?}", program.printed());
    }
    let mut killed = stage.contend("a", &[], "kill -9 $$");
    assert_eq!(killed.wait().await.code(), Some(137), "{:?}", killed.printed());
}

#[tokio::test]
async fn a_command_that_is_not_there_ends_it_as_a_shell_would() {
    let stage = Stage::on_sqlite(TTL);
    let mut program = stage.watch("a", &["--", "/nowhere/at-all"]);
    assert_eq!(program.wait().await.code(), Some(127), "{:?}", program.printed());
    assert!(
        program.printed().iter().any(|line| line.contains("/nowhere/at-all cannot be run")),
        "{:?}",
        program.printed()
    );
    let mut program = stage.watch("a", &["--", "/"]);
    assert_eq!(program.wait().await.code(), Some(126), "{:?}", program.printed());
}

#[tokio::test]
async fn signals_are_passed_on_and_those_that_end_it_end_both() {
    let stage = Stage::on_sqlite(TTL);
    let script = format!("trap 'echo received usr1' USR1; trap 'echo received hup' HUP; trap 'exit 9' INT; {READY}");
    let mut program = stage.contend("a", &[], &script);
    is_ready(&mut program).await;
    for (signal, output) in [(Signal::USR1, "received usr1"), (Signal::HUP, "received hup")] {
        program.signal(signal);
        program.line(output, |line| (line == output).then_some(())).await.expect("it runs");
    }
    program.signal(Signal::INT);
    assert_eq!(program.wait().await.code(), Some(9), "{:?}", program.printed());

    let mut program = stage.contend("a", &[], READY);
    is_ready(&mut program).await;
    let mut waiting = stage.contend("b", &[], "echo never");
    waits(&mut waiting).await;
    waiting.signal(Signal::TERM);
    assert_eq!(waiting.wait().await.code(), Some(0), "{:?}", waiting.printed());
    program.signal(Signal::TERM);
    assert_eq!(program.wait().await.code(), Some(0), "{:?}", program.printed());
}

#[tokio::test]
async fn what_is_meant_for_a_leaders_command_does_not_end_those_that_wait() {
    let stage = Stage::on_sqlite(TTL);
    let mut leader = stage.contend("a", &[], READY);
    is_ready(&mut leader).await;
    let mut waiting = stage.contend("b", &[], "exit 6");
    waits(&mut waiting).await;
    for signal in [Signal::HUP, Signal::USR1, Signal::USR2] {
        waiting.signal(signal);
    }
    leader.signal(Signal::TERM);
    assert_eq!(leader.wait().await.code(), Some(0), "{:?}", leader.printed());
    assert_eq!(waiting.wait().await.code(), Some(6), "{:?}", waiting.printed());

    let mut watching = stage.watch("c", &[]);
    watching.line("that it runs", |line| line.contains("newLeader").then_some(())).await.expect("it runs");
    watching.signal(Signal::HUP);
    assert_eq!(watching.wait().await.code(), Some(0), "{:?}", watching.printed());
}

#[tokio::test]
async fn a_command_that_ignores_the_request_is_killed_after_the_grace_with_all_it_started() {
    let stage = Stage::on_sqlite(TTL);
    let script = format!("trap '' TERM; sleep 1000 & echo $! > child; {READY}");
    let mut program = stage.contend("a", &["--grace", "200ms"], &script);
    is_ready(&mut program).await;
    let child = number_in(&stage.path("child")).await;
    program.signal(Signal::TERM);
    assert_eq!(program.wait().await.code(), Some(137), "{:?}", program.printed());
    assert!(!is_alive(child));
}

#[tokio::test]
async fn a_command_that_outlasts_two_leases_is_left_alone() {
    let stage = Stage::on_sqlite(TTL);
    let mut program = stage.contend("a", &["--once"], "sleep 7; exit 3");
    assert_eq!(program.wait().await.code(), Some(3), "{:?}", program.printed());
}

#[tokio::test]
async fn without_a_command_every_change_is_a_line_of_json() {
    let stage = Stage::on_sqlite(TTL);
    let events = |program: &Program| -> Vec<Value> {
        program.printed().iter().filter_map(|line| serde_json::from_str(line).ok()).collect()
    };
    let mut first = stage.watch("a", &[]);
    let leads = |line: &str| line.contains("\"newLeader\":\"a\"").then_some(());
    first.line("that it leads", leads).await.expect("it runs");
    let mut second = stage.watch("b", &["--once"]);
    second.line("who leads", leads).await.expect("it runs");
    // A member that has left is not listed any more.
    let both = |line: &str| line.contains("\"workers\":[\"a\",\"b\"]").then_some(());
    second.line("both members", both).await.expect("it runs");
    first.signal(Signal::TERM);
    assert_eq!(first.wait().await.code(), Some(0), "{:?}", first.printed());
    second.line("its own turn", |line| line.contains("\"newLeader\":\"b\"").then_some(())).await.expect("it runs");
    second.signal(Signal::INT);
    assert_eq!(second.wait().await.code(), Some(0), "{:?}", second.printed());

    let (first, second) = (events(&first), events(&second));
    for event in first.iter().chain(&second) {
        assert!(event["at"].is_string() && event["namespace"] == NAMESPACE, "{event}");
    }
    let changes = |events: &[Value]| -> Vec<[Value; 3]> {
        let changes = events.iter().filter(|it| it["event"] == "leader:changed");
        changes.map(|it| ["previousLeader", "newLeader", "epoch"].map(|field| it[field].clone())).collect()
    };
    let one = [[Value::Null, json!("a"), json!(1)], [json!("a"), Value::Null, json!(1)]];
    assert_eq!(changes(&first), one);
    let both = changes(&second);
    assert_eq!(both.first(), Some(&one[0]));
    assert_eq!(both.last(), Some(&[json!("b"), Value::Null, json!(2)]));
    let members = second.iter().find(|it| it["event"] == "workers:updated").expect("members");
    assert_eq!(members["workers"], json!(["a", "b"]));
}

#[tokio::test]
async fn without_a_command_and_for_one_term_it_ends_with_the_term() {
    let redis = RedisServer::start().await;
    let wire = Proxy::start(([127, 0, 0, 1], redis.port()).into()).await;
    let stage = Stage::at(format!("redis://{}", wire.address()), TTL);
    let mut program = stage.watch("a", &["--once"]);
    program.line("that it leads", |line| line.contains("\"newLeader\":\"a\"").then_some(())).await.expect("it runs");
    wire.freeze();
    assert_eq!(program.wait().await.code(), Some(0), "{:?}", program.printed());
    let ended = |line: &String| line.contains("\"previousLeader\":\"a\",\"newLeader\":null");
    assert!(program.printed().iter().any(ended), "{:?}", program.printed());
}

#[tokio::test]
async fn heartbeats_that_come_too_late_for_a_command_are_refused() {
    let stage = Stage::on_sqlite(TTL);
    let mut cli = stage.cli();
    cli.env = vec![("CONVOKE_ELECTION__HEARTBEAT_INTERVAL".into(), "10s".into())];
    let refused = cli.run(["elect", "x", "--leases", "sqlite:x.db", "--", "true"]).await;
    assert_eq!(refused.code, Some(2), "{refused:?}");
    assert!(refused.stderr.contains("election.heartbeat_interval: expected at most 7s500ms"), "{}", refused.stderr);
    let in_proportion = cli.run(["elect", "x", "--leases", "sqlite:x.db", "--ttl", TTL, "--", "true"]).await;
    assert_eq!(in_proportion.code, Some(0), "{in_proportion:?}");
}

#[tokio::test]
async fn a_wrong_command_line_is_refused_by_what_is_wrong() {
    let stage = Stage::on_sqlite(TTL);
    for (line, message) in [
        ("elect", "<NAMESPACE>"),
        ("elect x", "--leases"),
        ("elect x --leases memory:", "--leases"),
        ("elect x --leases ftp://host", "leases.url"),
        ("elect x --leases sqlite:x.db --ttl soon", "--ttl"),
        ("elect x --leases sqlite:x.db --ttl 1ms", r#"--ttl: expected at least 20ms, got "1ms""#),
        ("elect x --leases sqlite:x.db --ttl 400d", "--ttl: expected at most a year, got"),
        ("elect x --leases sqlite:x.db --policy loudest", "--policy"),
        ("elect x --leases sqlite:x.db sleep 1", "sleep"),
        ("elect coordinator --leases sqlite:x.db", "by which a cluster elects its own leader"),
    ] {
        let output = stage.cli().run(line.split(' ')).await;
        assert_eq!(output.code, Some(2), "{line}: {output:?}");
        assert!(output.stderr.contains(message), "{line}: {}", output.stderr);
    }
    let empty = stage.cli().run(["elect", "", "--leases", "sqlite:x.db"]).await;
    assert_eq!(empty.code, Some(2), "{empty:?}");
    let away = stage.cli().run(["elect", "x", "--leases", "redis://127.0.0.1:1", "--", "true"]).await;
    assert_eq!(away.code, Some(1), "{away:?}");
}
