//! A command that runs in one place at a time, whatever happens to those who would run it.

use convoke_testkit::process::{
    Program, Proxy, RedisServer, S3Server, SharedPostgres, Signal, is_alive, number_in, skip_loudly, wait_for_value,
};

use super::stage::Stage;

const NAMES: [&str; 3] = ["a", "b", "c"];
/// Long enough that a busy machine does not lose it by accident.
const TTL: &str = "2s";

/// Ends when asked to.
const GENTLE: &str = r#"while :; do echo "$CONVOKE_EPOCH $NAME" >> "$DIARY"; sleep 0.01; done"#;
/// Does not, and neither does what it starts.
const STUBBORN: &str = r#"trap "" TERM INT HUP
    (while :; do echo "$CONVOKE_EPOCH $NAME" >> "$DIARY"; sleep 0.01; done) & wait"#;

/// The fault of a leader.
#[derive(Debug, Clone, Copy)]
enum Fate {
    Killed,
    /// Together with all in its group, as a supervisor does it.
    Terminated,
    /// Until another leads, and some time longer.
    Paused,
}

async fn befall(stage: &Stage, fate: Fate, epoch: u64, leader: &mut Program) {
    match fate {
        Fate::Killed => leader.kill().await,
        Fate::Terminated => {
            leader.signal(Signal::TERM);
            leader.wait().await;
        }
        Fate::Paused => {
            leader.signal(Signal::STOP);
            stage.term_after(epoch).await;
            leader.signal(Signal::CONT);
        }
    }
}

async fn runs_in_one_place(stage: &Stage, script: &str) {
    let flags = ["--grace", "500ms"];
    let contend = |name: &str| stage.contend(name, &flags, script);
    let mut contenders = NAMES.map(contend);
    let mut epoch = 0;
    for fate in [Fate::Killed, Fate::Paused, Fate::Terminated, Fate::Paused, Fate::Killed, Fate::Terminated] {
        let entry = stage.term_after(epoch).await;
        epoch = entry.epoch;
        let index = NAMES.iter().position(|name| *name == entry.name).expect("one of them");
        befall(stage, fate, epoch, &mut contenders[index]).await;
        if contenders[index].has_ended() {
            contenders[index] = contend(NAMES[index]);
        }
    }
    stage.term_after(epoch).await;
    for contender in &mut contenders {
        contender.signal(Signal::TERM);
    }
    for contender in &mut contenders {
        contender.wait().await;
    }
    stage.assert_one_at_a_time();
}

#[tokio::test]
async fn a_gentle_command_runs_in_one_place_on_sqlite() {
    runs_in_one_place(&Stage::on_sqlite(TTL), GENTLE).await;
}

#[tokio::test]
async fn a_stubborn_command_runs_in_one_place_on_redis() {
    let redis = RedisServer::start().await;
    runs_in_one_place(&Stage::at(redis.url(), TTL), STUBBORN).await;
}

async fn is_taken_over_from_the_dead(stage: &Stage) {
    let mut first = stage.contend("first", &[], STUBBORN);
    let led = stage.term_after(0).await;
    let mut second = stage.contend("second", &[], GENTLE);
    second.line("that it waits", |line| line.contains("contending for the lead").then_some(())).await.expect("it runs");
    first.kill().await;
    let leads = stage.term_after(led.epoch).await;
    assert_eq!((led.name.as_str(), leads.name.as_str()), ("first", "second"));
    second.signal(Signal::TERM);
    assert_eq!(second.wait().await.code(), Some(0), "{:?}", second.printed());
    stage.assert_one_at_a_time();
}

#[tokio::test]
async fn a_command_is_taken_over_from_the_dead_on_postgres() {
    is_taken_over_from_the_dead(&Stage::at(SharedPostgres::get().create_database(), TTL)).await;
}

#[tokio::test]
async fn a_command_is_taken_over_from_the_dead_on_s3() {
    let server = S3Server::start().await;
    is_taken_over_from_the_dead(&Stage::at(server.url("elect"), TTL).with(server.variables())).await;
}

#[tokio::test]
async fn a_leader_that_is_parted_from_its_backend_ends_its_command_before_another_begins() {
    let redis = RedisServer::start().await;
    let proxy = Proxy::start(([127, 0, 0, 1], redis.port()).into()).await;
    let stage = Stage::at(redis.url(), TTL);
    let asked = stage.path("asked");
    let script = format!("trap 'touch {}; exit 5' TERM\n{GENTLE}", asked.display());
    let parted = format!("redis://{}", proxy.address());
    let mut first = stage.contend_at(&parted, "parted", &["--once"], &script);
    let entry = stage.term_after(0).await;
    let mut second = stage.contend("direct", &[], GENTLE);
    proxy.freeze();
    assert_eq!(first.wait().await.code(), Some(1), "{:?}", first.printed());
    assert!(asked.exists(), "it was asked to end first");
    let next = stage.term_after(entry.epoch).await;
    assert_eq!((entry.name.as_str(), next.name.as_str()), ("parted", "direct"));
    second.signal(Signal::TERM);
    assert_eq!(second.wait().await.code(), Some(0), "{:?}", second.printed());
    stage.assert_one_at_a_time();
}

/// A leader whose command does not end when it is asked to, and was asked because the wire to the backend is frozen.
struct Doomed {
    stage: Stage,
    leader: Program,
    wire: Proxy,
    _redis: RedisServer,
}

async fn doomed(flags: &[&str]) -> Doomed {
    let redis = RedisServer::start().await;
    let wire = Proxy::start(([127, 0, 0, 1], redis.port()).into()).await;
    let stage = Stage::at(format!("redis://{}", wire.address()), "6s");
    let leader = stage.contend("a", flags, &format!("trap 'touch asked' TERM\n{GENTLE}"));
    stage.term_after(0).await;
    wire.freeze();
    wait_for_value("that it is asked to end", true, || async { stage.path("asked").exists() }).await;
    Doomed { stage, leader, wire, _redis: redis }
}

#[tokio::test]
async fn a_command_that_was_asked_to_end_is_killed_though_the_backend_comes_back() {
    let mut doomed = doomed(&["--once"]).await;
    doomed.wire.heal();
    assert_eq!(doomed.leader.wait().await.code(), Some(1), "{:?}", doomed.leader.printed());
    doomed.stage.assert_one_at_a_time();
}

#[tokio::test]
async fn a_request_to_end_counts_also_where_the_lead_is_lost() {
    let mut doomed = doomed(&[]).await;
    doomed.leader.signal(Signal::TERM);
    let code = doomed.leader.wait().await.code();
    // With the code of the command, or without one if that had ended already when the request arrived.
    assert!(matches!(code, Some(0 | 137)), "{code:?}: {:?}", doomed.leader.printed());
}

#[tokio::test]
async fn nothing_of_the_command_outlives_a_killed_elector_or_a_killed_guard() {
    let stage = Stage::on_sqlite(TTL);
    // One in the command's group, one in a session of its own, and one there whose parent has ended.
    let script = r#"trap "" TERM; sleep 1000 & echo $! > child
        setsid sh -c 'sleep 1000 & echo $! > far; wait' &
        sh -c 'setsid sh -c "sleep 1000 & echo \$! > orphan; wait" &'
        echo $PPID > guard; echo $$ > command; wait; wait; wait"#;
    let files = ["command", "child", "far", "orphan", "guard"].map(|name| stage.path(name));
    for victim in ["elector", "guard"] {
        for file in &files {
            let _ = std::fs::remove_file(file);
        }
        let mut elector = stage.contend(victim, &[], script);
        let mut pids = Vec::new();
        for file in &files {
            pids.push(number_in(file).await);
        }
        let guard = *pids.last().expect("the guard is the last");
        if victim == "elector" {
            elector.kill().await;
        } else {
            let pid = i32::try_from(guard).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
            rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
            assert_eq!(elector.wait().await.code(), Some(1), "{:?}", elector.printed());
        }
        let left = || async { pids.iter().copied().filter(|pid| is_alive(*pid)).collect::<Vec<_>>() };
        wait_for_value("nothing left", Vec::new(), left).await;
    }
}

#[tokio::test]
async fn what_a_command_leaves_behind_in_sessions_of_its_own_is_killed_and_its_orphans_are_buried() {
    let stage = Stage::on_sqlite(TTL);
    // One orphan ends while the command runs, and nobody else would ask for it.
    let script = r#"sh -c 'setsid sh -c "echo \$\$ > short" &'
        setsid sh -c 'echo $$ > long; setsid sleep 1000' &
        while ! [ -s short ] || ! [ -s long ] || [ -e "/proc/$(cat short)" ]; do sleep 0.02; done; exit 4"#;
    let mut elector = stage.contend("a", &[], script);
    assert_eq!(elector.wait().await.code(), Some(4), "{:?}", elector.printed());
    assert!(!is_alive(number_in(&stage.path("long")).await), "it is gone before the lead is given up");
}

#[tokio::test]
async fn what_has_changed_its_user_and_may_not_be_killed_is_not_waited_for() {
    if !rustix::process::geteuid().is_root() {
        let test = "what_has_changed_its_user_and_may_not_be_killed_is_not_waited_for";
        return skip_loudly(test, "only root can change its user");
    }
    // Root may kill whom it likes, unless it has given that right up.
    let stage = Stage::on_sqlite(TTL).under(&["setpriv", "--bounding-set=-kill"]);
    let script = r#"setsid sh -c 'echo $$ > another
            exec setpriv --reuid=65534 --clear-groups sleep 200' > another.log 2>&1 &
        while ! grep -qs sleep "/proc/$(cat another)/comm"; do sleep 0.02; done; exit 4"#;
    let mut elector = stage.contend("a", &[], script);
    assert_eq!(elector.wait().await.code(), Some(4), "{:?}", elector.printed());
    let another = number_in(&stage.path("another")).await;
    assert!(is_alive(another), "it was not another's");
    let pid = i32::try_from(another).ok().and_then(rustix::process::Pid::from_raw).expect("a process id");
    rustix::process::kill_process(pid, Signal::KILL).expect("it runs");
}
