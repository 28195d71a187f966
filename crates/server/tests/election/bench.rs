//! The error of `convoke bench election` if it cannot measure.

use super::stage::Stage;

#[tokio::test]
async fn an_etcd_that_was_named_and_cannot_be_asked_is_not_left_out_in_silence() {
    let stage = Stage::on_sqlite("3s");
    let mut cli = stage.cli();
    cli.env = vec![("PATH".into(), String::new())];
    let output = cli.run(["bench", "election", "--quick", "--etcd", "http://127.0.0.1:1"]).await;
    assert_eq!(output.code, Some(2), "{output:?}");
    assert!(output.stderr.contains("etcdctl is not on the PATH"), "{}", output.stderr);
}

#[tokio::test]
async fn a_contender_that_ends_before_it_led_is_quoted() {
    let stage = Stage::on_sqlite("3s");
    let output = stage.cli().run(["bench", "election", "--quick", "--redis", "redis://127.0.0.1:1"]).await;
    assert_eq!(output.code, Some(1), "{output:?}");
    let printed = output.stderr.split("a contender ended before it led: ").nth(1);
    assert!(
        printed.is_some_and(
            |printed| printed.contains("cannot connect to Redis at 127.0.0.1:1 (--leases): connection refused")
        ),
        "{}",
        output.stderr
    );
}
