use clap::CommandFactory as _;
use clap::error::ErrorKind;

use super::*;

fn parse(line: &str) -> Result<Cli, clap::Error> {
    Cli::typed(std::iter::once("convoke").chain(line.split_whitespace()).map(OsString::from))
}

#[test]
fn more_may_be_asked_for_before_and_behind_the_command() {
    for (line, verbose) in [
        ("-v job list", 1),
        ("-vv job list", 2),
        ("-v --verbose job -v list", 3),
        ("job list -v", 1),
        ("-v", 1),
        ("-v --demo", 1),
        ("--demo -v", 1),
        ("", 0),
    ] {
        let cli = parse(line).expect(line);
        assert_eq!((cli.verbose, cli.command.is_some()), (verbose, line.contains("job")), "{line}");
    }
    for line in ["--log-level debug --log-format=json job list", "job list --log-level debug --log-format json"] {
        let cli = parse(line).expect(line);
        let expected = LogArgs { log_format: Some(logs::Format::Json), log_level: Some(logs::Level::Debug) };
        assert_eq!((cli.log, cli.command.is_some()), (expected, true), "{line}");
    }
    for line in ["--log-level loud job list", "--log-format xml job list", "--log-level"] {
        assert!(parse(line).is_err(), "{line}");
    }
    for line in ["-v --demo job list", "--demo job list", "-", "- job list", "-x job list"] {
        assert!(parse(line).is_err(), "{line}");
    }
}

#[test]
fn the_command_line_is_well_formed() {
    Cli::command().debug_assert();
}

#[test]
fn every_command_says_what_it_does() {
    fn check(command: &clap::Command, path: &str) {
        assert!(command.get_about().is_some(), "{path} has no help");
        for argument in command.get_arguments().filter(|argument| !argument.is_positional()) {
            assert!(argument.get_help().is_some(), "{path} --{} has no help", argument.get_id());
        }
        for inner in command.get_subcommands().filter(|inner| inner.get_name() != "help") {
            check(inner, &format!("{path} {}", inner.get_name()));
        }
    }
    check(&Cli::command(), "convoke");
}

#[test]
fn convoke_alone_is_convoke_serve() {
    assert!(parse("").expect("valid").command.is_none());
    assert!(parse("--demo --store memory:").expect("valid").command.is_none());
    assert!(matches!(parse("serve --demo").expect("valid").command, Some(Command::Serve(_))));
}

#[test]
fn every_promised_command_is_understood() {
    let id = "0198c0de-0000-7000-8000-000000000001";
    for line in [
        "serve --config f.toml --node-id a --http 127.0.0.1:0 --store memory: --bus memory: --bus-prefix p --leases memory: \
         --shards off --demo --insecure --print-config",
        "enqueue t --queue q --args {} --priority high --delay 5s --max-retries 1 --timeout 1m --unique-key k \
         --correlation-id c --wait",
        "enqueue t --args @file --at 2030-01-01T00:00:00Z",
        "enqueue t --args -",
        "job list --queue q --type t --status failed --correlation-id c --limit 5 --cursor x --json",
        &format!("job show {id} --server http://h:1 --token t"),
        &format!("job --json history {id}"),
        &format!("job cancel {id} --reason why"),
        &format!("job retry {id} -v"),
        &format!("job logs -f {id}"),
        &format!("job logs {id} --after 5 --limit 10"),
        "schedule add n --cron @daily --tz Europe/Berlin --type t --queue q --args {} --missed all --overlap allow",
        "schedule add n --every 5s --type t",
        "schedule list",
        "schedule show n",
        "schedule pause n",
        "schedule resume n",
        "schedule trigger n",
        "schedule remove n",
        "queue list",
        "queue show q",
        "queue pause q",
        "queue resume q",
        "queue limit q --rate 100/1s --concurrency 5",
        "queue limit q --rate none",
        "dead list --queue q --type t",
        "dead list --queue q --all",
        "dead retry --queue q --type t",
        &format!("dead retry {id} {id}"),
        "dead purge --all",
        "worker list",
        "worker run --queue a --queue b,c --concurrency 2 --exec true",
        "cluster status",
        "mesh nodes k --redis redis://h:1 --prefix p --json",
        "mesh call k 2 getStatus {} --timeout 1s --redis redis://h",
        "mesh call --prefix p k 2 t -",
        "mesh call k 2 t -5",
        "mesh serve k --redis redis://h --prefix p",
        #[cfg(feature = "bench")]
        "bench mesh --redis redis://h --rounds 3 --for 1s --quick --json",
        #[cfg(feature = "bench")]
        "bench pages --jobs 1000 --requests 5 --store postgres://h/b --dir /tmp --no-fill --quick --json",
        #[cfg(feature = "bench")]
        "bench jobs --jobs 5 --connections 64 --batch 1000 --concurrency 10 --rate 200 --quick --flat --lists --raw-worker",
    ] {
        if let Err(error) = parse(line) {
            panic!("{line}: {error}");
        }
    }
}

#[test]
fn a_wrong_command_line_is_refused_before_anything_is_asked() {
    for (line, kind) in [
        ("enqueue", ErrorKind::MissingRequiredArgument),
        ("enqueue t --delay 5s --at 2030-01-01T00:00:00Z", ErrorKind::ArgumentConflict),
        ("enqueue t --delay soon", ErrorKind::ValueValidation),
        ("enqueue t --at tomorrow", ErrorKind::ValueValidation),
        ("enqueue t --priority urgent", ErrorKind::ValueValidation),
        ("enqueue t --unique-for 5s", ErrorKind::MissingRequiredArgument),
        ("job show not-an-id", ErrorKind::ValueValidation),
        ("job list --status lost", ErrorKind::ValueValidation),
        ("job list --limit 0", ErrorKind::ValueValidation),
        ("schedule add n --type t", ErrorKind::MissingRequiredArgument),
        ("schedule add n --type t --every 5s --cron @daily", ErrorKind::ArgumentConflict),
        ("schedule add n --type t --every 5s --tz UTC", ErrorKind::ArgumentConflict),
        ("queue limit q", ErrorKind::MissingRequiredArgument),
        ("queue limit q --rate fast", ErrorKind::ValueValidation),
        ("dead purge --all --queue q", ErrorKind::ArgumentConflict),
        ("dead list --all --limit 5", ErrorKind::ArgumentConflict),
        ("worker run --exec true", ErrorKind::MissingRequiredArgument),
        ("mesh call k 2 t", ErrorKind::MissingRequiredArgument),
        ("mesh call k 0 t {}", ErrorKind::ValueValidation),
        ("mesh call k one t {}", ErrorKind::ValueValidation),
        ("mesh call k 2 t {} --timeout 0s", ErrorKind::ValueValidation),
        ("mesh nodes k --redis gopher://h", ErrorKind::ValueValidation),
        #[cfg(feature = "bench")]
        ("bench mesh --redis redis+sentinel://h/m", ErrorKind::ValueValidation),
        #[cfg(feature = "bench")]
        ("bench mesh --rounds 0", ErrorKind::ValueValidation),
        ("worker run --queue q", ErrorKind::MissingRequiredArgument),
        ("shards join s --shards 10", ErrorKind::MissingRequiredArgument),
        ("shards join s --worker-id a --shards -1", ErrorKind::UnknownArgument),
        ("shards join s --worker-id a --shards 1 --curve-secret-key x", ErrorKind::MissingRequiredArgument),
        ("--demo job list", ErrorKind::ArgumentConflict),
    ] {
        let error = parse(line).expect_err(line);
        assert_eq!(error.kind(), kind, "{line}: {error}");
        assert_eq!(error.exit_code(), 2);
    }
}

#[test]
fn arguments_of_a_job_must_be_json() {
    let read_args = |given| enqueue::read_json("--args", given, 1 << 20);
    let message = read_args("{\"a\":").expect_err("refused");
    assert!(
        message.is::<Usage>() && message.to_string().starts_with("--args: expected JSON, got \"{\\\"a\\\":\""),
        "{message}"
    );
    let message = read_args("@/no/such/file").expect_err("refused");
    assert!(message.is::<Usage>() && message.to_string().starts_with("--args @/no/such/file: "), "{message}");
    assert_eq!(read_args("{\"a\": 1}").expect("valid").as_str(), "{\"a\": 1}");
}
