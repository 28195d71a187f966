//! The command line against a real server.

use convoke_testkit::invariants::Observations;
use convoke_testkit::process::{GatewayWorker, Handling, Plan, eventually};
use serde_json::json;

use super::server;

#[tokio::test]
async fn enqueue_waits_and_its_exit_code_tells_how_it_ended() {
    let node = server().start().await;
    let _worker = node.exec_worker("good", "cat; echo >&2 warned");
    let _bad = node.exec_worker("bad", "exit 7");
    let cli = node.cli();
    cli.run(["enqueue", "greet", "--queue", "good", "--args", r#"{"name":"Ada"}"#, "--wait"]).await.expect(0);
    let failed = cli.run(["enqueue", "greet", "--queue", "bad", "--max-retries", "0", "--wait"]).await;
    assert_eq!(failed.code, Some(1), "{}{}", failed.stdout, failed.stderr);
    let by_file = node.settings().directory().join("args.json");
    std::fs::write(&by_file, r#"{"from":"file"}"#).expect("a file");
    let at = format!("@{}", by_file.display());
    cli.run(["enqueue", "greet", "--queue", "good", "--args", &at, "--wait"]).await.expect(0);
    cli.run_with_input(["enqueue", "greet", "--queue", "good", "--args", "-", "--wait"], r#"{"from":"stdin"}"#)
        .await
        .expect(0);
    let jobs = cli.run(["job", "list", "--json"]).await.json();
    let list = jobs["jobs"].as_array().expect("jobs");
    let args: Vec<_> = list.iter().map(|job| job["args"].clone()).collect();
    assert!(args.contains(&json!({ "from": "file" })) && args.contains(&json!({ "from": "stdin" })), "{args:?}");
    let first = list.last().expect("a job")["id"].as_str().expect("an id");
    let logs = cli.run(["job", "logs", first]).await;
    assert!(logs.expect(0).contains("Ada") && logs.stdout.contains("warned"), "{}", logs.stdout);
    let letters = cli.run(["dead", "list", "--json"]).await.json();
    assert_eq!(letters["deadLetters"].as_array().map(Vec::len), Some(1));
}

#[tokio::test]
async fn jobs_and_schedules_have_every_option_that_is_typed_and_are_found_by_their_tags() {
    let node = server().start().await;
    let cli = node.cli();
    let options =
        "--queue q --args [1] --priority high --max-retries 4 --timeout 5s --correlation-id c --tag eu --tag monthly";
    let policy = r#"{"initialDelay":"1s","multiplier":3.0,"maxDelay":"9s","jitter":"none"}"#;
    let typed = |command: &'static str| command.split(' ').chain(options.split(' ')).chain(["--retry-policy", policy]);
    let enqueued = cli.run(typed("enqueue report --json")).await.json();
    let added = cli.run(typed("schedule add s --every 1h --type report --json")).await.json();
    let triggered = cli.run(["schedule", "trigger", "s", "--json"]).await.json();
    for name in ["queue", "args", "priority", "maxRetries", "retryPolicy", "timeout", "correlationId", "tags"] {
        assert_eq!(enqueued[name], added[name], "{name}");
        assert_eq!(enqueued[name], triggered[name], "{name}");
    }
    assert_eq!((&enqueued["tags"], &enqueued["retryPolicy"]["maxDelay"]), (&json!(["eu", "monthly"]), &json!("9s")));
    cli.run(["enqueue", "other", "--tag", "us"]).await.expect(0);
    let found = cli.run(["job", "list", "--tag", "eu", "--json"]).await.json();
    let ids: Vec<_> = found["jobs"].as_array().expect("jobs").iter().map(|job| &job["id"]).collect();
    assert_eq!(ids, [&triggered["id"], &enqueued["id"]]);
    let shown = cli.run(["job", "show", enqueued["id"].as_str().expect("an id")]).await;
    assert!(shown.expect(0).contains(r#"["eu","monthly"]"#), "{}", shown.stdout);
    let refused = cli.run(["enqueue", "t", "--tag", "x", "--tag", "x"]).await;
    assert!(refused.stderr.contains("tags[1]: expected each tag once"), "{}", refused.stderr);
    let refused = cli.run(["enqueue", "t", "--retry-policy", r#"{"delay":"1s"}"#]).await;
    assert!(refused.stderr.contains("unknown field `delay`"), "{}", refused.stderr);
}

#[tokio::test]
async fn a_command_gets_its_job_on_its_input_and_in_its_environment() {
    let node = server().start().await;
    let script = "cat > input; env | grep ^CONVOKE_ > environment";
    let _worker = node.exec_worker("q", script);
    let spec = json!({ "type": "report", "queue": "q", "args": { "n": 1 }, "correlationId": "c-1", "maxRetries": 4, "tags": ["a b"] });
    let id = node.enqueued(spec).await;
    let job = node.job_when(&id, &["completed"]).await;
    let read =
        |name: &str| std::fs::read_to_string(node.settings().directory().join(name)).expect("the command wrote it");
    assert_eq!(read("input").trim(), r#"{"n":1}"#);
    let environment = read("environment");
    let execution = job["executionId"].as_str().expect("an execution");
    for line in [
        format!("CONVOKE_JOB_ID={id}"),
        format!("CONVOKE_EXECUTION_ID={execution}"),
        "CONVOKE_JOB_TYPE=report".into(),
        "CONVOKE_QUEUE=q".into(),
        "CONVOKE_ATTEMPT=1".into(),
        r#"CONVOKE_TAGS=["a b"]"#.into(),
        "CONVOKE_MAX_RETRIES=4".into(),
        "CONVOKE_CORRELATION_ID=c-1".into(),
    ] {
        assert!(environment.lines().any(|it| it == line), "{line} is missing in\n{environment}");
    }
}

#[tokio::test]
async fn every_noun_can_be_managed() {
    let node = server().start().await;
    let cli = node.cli();
    let id = node.enqueued(json!({ "type": "t", "queue": "q" })).await;
    assert_eq!(cli.run(["job", "show", &id, "--json"]).await.json()["id"], id.as_str());
    cli.run(["job", "history", &id]).await.expect(0);
    cli.run(["job", "cancel", &id]).await.expect(0);
    cli.run(["job", "retry", &id]).await.expect(0);
    cli.run(["schedule", "add", "nightly", "--cron", "0 3 * * *", "--tz", "Europe/Berlin", "--type", "t"])
        .await
        .expect(0);
    for verb in ["show", "pause", "resume", "trigger"] {
        cli.run(["schedule", verb, "nightly"]).await.expect(0);
    }
    let schedules = cli.run(["schedule", "list", "--json"]).await.json();
    assert_eq!(schedules["schedules"][0]["tz"], "Europe/Berlin");
    cli.run(["schedule", "remove", "nightly"]).await.expect(0);
    for args in [["queue", "pause", "q"], ["queue", "resume", "q"], ["queue", "show", "q"]] {
        cli.run(args).await.expect(0);
    }
    cli.run(["queue", "limit", "q", "--rate", "100/1s", "--concurrency", "3"]).await.expect(0);
    let queue = cli.run(["queue", "show", "q", "--json"]).await.json();
    assert_eq!((&queue["rateLimit"], &queue["concurrency"]), (&json!({ "limit": 100, "per": "1s" }), &json!(3)));
    cli.run(["queue", "list"]).await.expect(0);
    cli.run(["queue", "pause", "unused"]).await.expect(0);
    assert_eq!(cli.run(["queue", "delete", "unused"]).await.expect(0).trim(), "unused is deleted");
    assert_eq!(cli.run(["queue", "delete", "unused"]).await.code, Some(1), "there is no such queue any more");
    assert_eq!(cli.run(["queue", "delete", "q"]).await.code, Some(1), "it has jobs");
    cli.run(["worker", "list"]).await.expect(0);
    let shown = cli.run(["-v", "cluster", "status"]).await;
    assert!(shown.expect(0).contains("SILENT FOR"));
    let status = cli.run(["cluster", "status", "--json"]).await.json();
    assert!(status["epoch"].as_u64() >= Some(1), "{status}");
    assert_ne!(cli.run(["dead", "purge"]).await.code, Some(0), "a purge of everything must be asked for");
    cli.run(["dead", "purge", "--all"]).await.expect(0);
}

#[tokio::test]
async fn settings_of_an_unknown_queue_say_that_they_created_it() {
    let node = server().start().await;
    let cli = node.cli();
    let created = r#"created queue "maill""#;
    let first = cli.run(["queue", "pause", "maill"]).await;
    assert!(first.expect(0).contains("paused") && first.stderr.contains(created), "{}", first.stderr);
    let again = cli.run(["queue", "pause", "maill"]).await;
    assert!(again.expect(0).contains("paused") && !again.stderr.contains("created"), "{}", again.stderr);
    let limited = cli.run(["queue", "limit", "another", "--concurrency", "1"]).await;
    limited.expect(0);
    assert!(limited.stderr.contains(r#"created queue "another""#), "{}", limited.stderr);
}

#[tokio::test]
async fn mistakes_are_told_apart_by_their_exit_code() {
    let node = server().start().await;
    let cli = node.cli();
    for args in [
        &["nonsense"][..],
        &["enqueue"],
        &["job", "show"],
        &["enqueue", "t", "--priority", "urgent"],
        &["serve", "--http", "127.0.0.1:0", "--store", "gopher://nowhere/jobs"],
        &["serve", "--http", "127.0.0.1:0", "--store", "memory:", "--bus", "gopher://nowhere"],
    ] {
        let output = cli.run(args).await;
        assert_eq!(output.code, Some(2), "{args:?}: {}", output.stderr);
    }
    let missing = cli.run(["job", "show", "0198c5f2-0000-7000-8000-000000000000"]).await;
    assert_eq!(missing.code, Some(1), "{}", missing.stderr);
    assert!(missing.stderr.starts_with("error: "), "{}", missing.stderr);
    let mut nobody = node.cli();
    nobody.server = Some("http://127.0.0.1:1".into());
    let away = nobody.run(["job", "list"]).await;
    assert_eq!(away.code, Some(1));
    assert!(away.stderr.contains("http://127.0.0.1:1"), "{}", away.stderr);
}

#[tokio::test]
async fn configuration_is_refused_with_the_name_of_what_is_wrong() {
    for (name, value) in [
        ("CONVOKE_WORKER__STALE_AFTR", "1s"),
        ("CONVOKE_WORKER__STALE_AFTER", "soon"),
        ("CONVOKE_NOTHING__AT_ALL", "1"),
        ("CONVOKE_HTTP__BIND", "nowhere"),
    ] {
        let builder = server();
        // No flags: they would win over the environment.
        let mut cli = builder.cli();
        cli.env = vec![(name.into(), value.into())];
        let refused = cli.run(["serve"]).await;
        assert!(matches!(refused.code, Some(1 | 2)), "{name}: {}", refused.stderr);
        let printed = refused.stderr.to_lowercase();
        let key = name.trim_start_matches("CONVOKE_").to_lowercase();
        assert!(printed.contains(&key) || printed.contains(&key.replace("__", ".")), "{name} is not named: {printed}");
        assert!(!builder.store_path().exists(), "refused before anything was opened");
    }
}

#[tokio::test]
async fn flags_win_over_the_environment_and_that_over_the_file() {
    let builder = server();
    let file = builder.directory().join("convoke.toml");
    std::fs::write(&file, "[node]\nid = \"from-file\"\n[retention]\ndead = \"5d\"\n[bus]\nprefix = \"from-file\"\n")
        .expect("a file");
    let builder = builder.env("CONVOKE_NODE__ID", "from-env").env("CONVOKE_BUS__PREFIX", "from-env");
    let node = builder.args(["--node-id", "from-flag"]).start().await;
    let cluster = node.http().get("/v1/cluster").await.expect("a response").expect(200);
    assert_eq!(cluster["leader"], "from-flag");
    let mut cli = node.cli();
    cli.env = vec![("CONVOKE_BUS__PREFIX".into(), "from-env".into())];
    let output = cli.run(["serve", "--print-config", "--node-id", "from-flag"]).await;
    let text = output.expect(0);
    for line in ["id = \"from-flag\"", "prefix = \"from-env\"", "dead = \"5d\""] {
        assert!(text.contains(line), "{line} is missing in\n{text}");
    }
}

#[tokio::test]
async fn the_demo_keeps_itself_busy() {
    let node = server().args(["--demo"]).start().await;
    eventually("completed jobs of the demo", || async {
        let jobs = node.http().get("/v1/jobs?status=completed").await.ok()?.json();
        (jobs["jobs"].as_array()?.len() >= 3).then_some(())
    })
    .await;
    let schedules = node.http().get("/v1/schedules").await.expect("a response").expect(200);
    assert!(!schedules["schedules"].as_array().expect("schedules").is_empty());
}

/// The store reads so many jobs for a page and no more: the matches are beyond the first pages, which are empty.
#[tokio::test]
async fn a_list_goes_on_where_a_page_is_empty() {
    let node = server().store("memory:").start().await;
    let wanted = node.enqueued(json!({ "type": "rare", "args": { "n": 1.50 } })).await;
    for _ in 0..3 {
        let jobs = vec![json!({ "type": "common" }); 10_000];
        node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    }
    let first = node.http().get("/v1/jobs?type=rare").await.expect("a response").expect(200);
    assert_eq!(first["jobs"], json!([]));
    assert!(first["nextCursor"].is_string(), "there is more to read: {first}");
    let cli = node.cli();
    let listed = cli.run(["job", "list", "--type", "rare"]).await;
    assert!(listed.expect(0).contains(&wanted), "{}", listed.stdout);
    let page = cli.run(["job", "list", "--type", "rare", "--json"]).await.json();
    assert_eq!((&page["jobs"][0]["id"], &page["nextCursor"]), (&json!(wanted), &json!(null)));
    let some = cli.run(["job", "list", "--type", "common", "--limit", "1000"]).await;
    assert_eq!(some.expect(0).lines().count(), 1_001, "a head and as many as were asked for");
    assert!(some.stderr.contains("more items follow: --cursor"), "{}", some.stderr);
}

#[tokio::test]
async fn all_dead_letters_are_listed_where_all_are_wanted() {
    let node = server().start().await;
    let jobs = vec![json!({ "type": "t", "queue": "q", "maxRetries": 0 }); 1_100];
    node.http().post("/v1/jobs/batch", json!({ "jobs": jobs })).await.expect("a response").expect(201);
    let failing = Plan::new("w", "q", |_| Handling::Fail("no luck".into())).concurrency(200);
    let _worker = GatewayWorker::start(node.http(), &Observations::default(), failing).await;
    eventually("all of them to have failed", || async {
        let queue = node.http().get("/v1/queues/q").await.ok()?.json();
        (queue["counts"]["failed"] == 1_100).then_some(())
    })
    .await;
    let cli = node.cli();
    let some = cli.run(["dead", "list"]).await;
    assert_eq!(some.expect(0).lines().count(), 51, "a head and fifty");
    let all = cli.run(["dead", "list", "--queue", "q", "--all"]).await;
    assert_eq!(all.expect(0).lines().count(), 1_101, "a head and all of them");
    assert_eq!(all.stderr, "", "there are no more");
    let all = cli.run(["dead", "list", "--all", "--json"]).await.json();
    assert_eq!((all["deadLetters"].as_array().map(Vec::len), &all["nextCursor"]), (Some(1_100), &json!(null)));
}
