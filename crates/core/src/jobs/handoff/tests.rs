use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::ids::ExecutionId;

mod model;

fn run(n: u128) -> RunRef {
    RunRef { job_id: JobId(Uuid::from_u128(n)), execution_id: ExecutionId(Uuid::from_u128(1_000 + n)) }
}

fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// The clock's origin is arbitrary; here it is an hour ago.
fn at(seconds: u64) -> Duration {
    secs(3_600 + seconds)
}

fn drain(jobs: u128) -> (Drain, Vec<Command>) {
    Drain::new((1..=jobs).map(run).collect(), ClusterSettings::default(), true, at(0))
}

fn ack(n: u128) -> Event {
    Event::Ack { job: run(n).job_id, new_owner: NodeId::new("node-2").expect("a name") }
}

fn publish(n: u128, tries: u32) -> Command {
    Command::Publish { run: run(n), tries }
}

const CLEAN: Command = Command::Exit { clean: true };
const UNCLEAN: Command = Command::Exit { clean: false };

#[test]
fn a_node_without_jobs_goes_at_once_and_clean() {
    for others_alive in [true, false] {
        let (mut drain, commands) = Drain::new(vec![], ClusterSettings::default(), others_alive, at(0));
        assert_eq!(commands, [CLEAN]);
        assert_eq!((drain.next_wake(), drain.on(Event::Tick, at(99))), (None, vec![]));
    }
}

#[test]
fn a_node_that_is_alone_goes_at_once_and_leaves_orphans() {
    let (drain, commands) = Drain::new(vec![run(1), run(2)], ClusterSettings::default(), false, at(0));
    assert_eq!(commands, [Command::MarkOrphan(run(1)), Command::MarkOrphan(run(2)), UNCLEAN]);
    assert_eq!(drain.next_wake(), None);
}

#[test]
fn case_a_acknowledged_jobs_are_released_and_the_last_one_ends_it_clean() {
    let (mut drain, commands) = drain(3);
    assert_eq!(commands, [publish(1, 1), publish(2, 1), publish(3, 1)]);
    assert_eq!(drain.next_wake(), Some(at(5)));
    assert_eq!(drain.on(ack(2), at(1)), [Command::Release(run(2))]);
    assert_eq!(drain.on(ack(2), at(1)), [], "the same again changes nothing");
    assert_eq!(drain.on(ack(99), at(1)), [], "nor does one of a job that is not ours");
    assert_eq!(drain.on(ack(1), at(2)), [Command::Release(run(1))]);
    assert_eq!(drain.open().collect::<Vec<_>>(), [run(3)]);
    assert_eq!(drain.on(ack(3), at(4)), [Command::Release(run(3)), CLEAN]);
    assert_eq!((drain.next_wake(), drain.on(ack(3), at(5))), (None, vec![]));
}

#[test]
fn case_b_an_offer_without_an_answer_is_repeated() {
    let (mut drain, _) = drain(2);
    assert_eq!(drain.on(ack(1), at(3)), [Command::Release(run(1))]);
    assert_eq!(drain.on(Event::Tick, at(4)), []);
    assert_eq!(drain.on(Event::Tick, at(5)), [publish(2, 2)]);
    assert_eq!(drain.next_wake(), Some(at(10)));
    assert_eq!(drain.on(Event::Tick, at(10)), [publish(2, 3)]);
    assert_eq!(drain.on(Event::Tick, at(15)), [publish(2, 4)]);
    assert_eq!(drain.on(ack(2), at(19)), [Command::Release(run(2)), CLEAN]);
}

#[test]
fn a_tick_that_comes_late_repeats_an_offer_once() {
    let (mut drain, _) = drain(1);
    assert_eq!(drain.on(Event::Tick, at(17)), [publish(1, 2)]);
    assert_eq!(drain.next_wake(), Some(at(22)));
}

/// Job 2 is acknowledged, job 1 is marked as an orphan after four offers.
fn given_up() -> Drain {
    let (mut drain, _) = drain(2);
    drain.on(ack(2), at(1));
    for tries in 1..=3 {
        assert_eq!(drain.on(Event::Tick, at(5 * tries)), [publish(1, tries as u32 + 1)]);
    }
    assert_eq!(drain.on(Event::Tick, at(20)), [Command::MarkOrphan(run(1))]);
    drain
}

#[test]
fn case_c_a_job_that_nobody_takes_becomes_an_orphan_and_the_node_waits_before_it_goes() {
    let mut drain = given_up();
    assert_eq!(drain.next_wake(), Some(at(50)));
    assert_eq!(drain.on(Event::Tick, at(49)), []);
    assert_eq!(drain.on(Event::Tick, at(50)), [UNCLEAN], "it was marked before");
}

#[test]
fn case_c_an_acknowledgement_that_was_merely_late_still_counts() {
    assert_eq!(given_up().on(ack(1), at(30)), [Command::Release(run(1)), CLEAN]);
    assert_eq!(given_up().on(Event::JobEnded(run(1).job_id), at(30)), [CLEAN]);
}

#[test]
fn case_c_one_orphan_does_not_hurry_the_others() {
    let (mut drain, _) = drain(2);
    drain.on(Event::OthersAlive(false), at(1));
    drain.on(Event::OthersAlive(true), at(2));
    for second in [7, 12, 17] {
        assert_eq!(drain.on(Event::Tick, at(second)).len(), 2);
    }
    assert_eq!(drain.on(ack(1), at(21)), [Command::Release(run(1))]);
    assert_eq!(drain.on(Event::Tick, at(22)), [Command::MarkOrphan(run(2))]);
    // The wait begins when only orphans are left.
    assert_eq!(drain.next_wake(), Some(at(52)));
}

#[test]
fn case_d_when_all_others_die_it_waits_without_offering_until_the_hard_timeout() {
    let (mut drain, _) = drain(2);
    assert_eq!(drain.on(Event::OthersAlive(false), at(3)), []);
    assert_eq!(drain.next_wake(), Some(at(60)));
    assert_eq!(drain.on(Event::Tick, at(30)), []);
    assert_eq!(drain.on(Event::JobEnded(run(2).job_id), at(40)), []);
    assert_eq!(drain.on(Event::Tick, at(59)), []);
    assert_eq!(drain.on(Event::Tick, at(60)), [Command::MarkOrphan(run(1)), UNCLEAN]);
}

#[test]
fn case_d_a_node_that_comes_back_gets_time_to_answer() {
    let (mut drain, _) = drain(1);
    drain.on(Event::OthersAlive(false), at(3));
    assert_eq!(drain.on(Event::OthersAlive(true), at(20)), []);
    assert_eq!(drain.on(Event::OthersAlive(true), at(24)), [], "the same event again does not put it off");
    assert_eq!(drain.next_wake(), Some(at(25)));
    assert_eq!(drain.on(Event::Tick, at(25)), [publish(1, 2)]);
    assert_eq!(drain.on(ack(1), at(26)), [Command::Release(run(1)), CLEAN]);
}

#[test]
fn jobs_that_end_meanwhile_need_no_owner() {
    let (mut drain, _) = drain(2);
    assert_eq!(drain.on(Event::JobEnded(run(1).job_id), at(1)), []);
    assert_eq!(drain.on(Event::JobEnded(run(99).job_id), at(1)), []);
    assert_eq!(drain.on(Event::JobEnded(run(2).job_id), at(2)), [CLEAN]);
}

#[test]
fn the_hard_timeout_ends_every_case() {
    let settings = ClusterSettings { handoff_hard_timeout: secs(7), ..ClusterSettings::default() };
    let (mut drain, _) = Drain::new(vec![run(1)], settings, true, at(0));
    assert_eq!(drain.on(Event::Tick, at(5)), [publish(1, 2)]);
    assert_eq!(drain.next_wake(), Some(at(7)));
    assert_eq!(drain.on(Event::Tick, at(7)), [Command::MarkOrphan(run(1)), UNCLEAN]);
}

#[test]
fn without_retries_an_offer_is_made_once() {
    let settings =
        ClusterSettings { handoff_max_retries: 0, handoff_orphan_wait: Duration::ZERO, ..ClusterSettings::default() };
    let (mut drain, commands) = Drain::new(vec![run(1)], settings, true, at(0));
    assert_eq!(commands, [publish(1, 1)]);
    assert_eq!(drain.on(Event::Tick, at(5)), [Command::MarkOrphan(run(1)), UNCLEAN]);
}

fn event() -> impl Strategy<Value = Event> {
    prop_oneof![
        3 => (1..7u128).prop_map(ack),
        1 => (1..7u128).prop_map(|n| Event::JobEnded(run(n).job_id)),
        1 => any::<bool>().prop_map(Event::OthersAlive),
        4 => Just(Event::Tick),
    ]
}

proptest! {
    /// In every history the drain ends once, by the hard timeout; each job is released, ended or marked, and a clean
    /// exit leaves none; no job is offered too often, or while no other node is alive.
    #[test]
    fn every_drain_ends_in_time_and_accounts_for_every_job(
        jobs in 0..6u128,
        others_alive: bool,
        ack_timeout in 0..20u64,
        max_retries in 0..5u32,
        events in prop::collection::vec((event(), 0..15u64), 0..60),
    ) {
        let settings = ClusterSettings { handoff_ack_timeout: secs(ack_timeout), handoff_max_retries: max_retries, ..ClusterSettings::default() };
        let (mut drain, mut all) = Drain::new((1..=jobs).map(run).collect(), settings, others_alive, at(0));
        let (mut now, mut ended, mut alive) = (0, BTreeSet::new(), others_alive);
        for (event, step) in events {
            // The caller ticks at `next_wake`.
            while let Some(wake) = drain.next_wake().filter(|wake| *wake <= at(now + step)) {
                let commands = drain.on(Event::Tick, wake);
                let offers = commands.iter().filter(|command| matches!(command, Command::Publish { .. })).count();
                prop_assert!(alive || offers == 0);
                all.extend(commands);
                prop_assert!(drain.next_wake().is_none_or(|next| next > wake), "it would spin");
            }
            now += step;
            if let Event::OthersAlive(now_alive) = event {
                alive = now_alive;
            }
            if let Event::JobEnded(job) = event && drain.next_wake().is_some() {
                ended.insert(job);
            }
            all.extend(drain.on(event, at(now)));
        }
        all.extend(drain.on(Event::Tick, at(now.max(60))));
        let exits = all.iter().filter(|command| matches!(command, Command::Exit { .. })).count();
        prop_assert_eq!((exits, drain.next_wake()), (1, None));
        let released: BTreeSet<JobId> =
            all.iter().filter_map(|c| if let Command::Release(run) = c { Some(run.job_id) } else { None }).collect();
        let marked: BTreeSet<JobId> =
            all.iter().filter_map(|c| if let Command::MarkOrphan(run) = c { Some(run.job_id) } else { None }).collect();
        let is_finished = |n: &u128| released.contains(&run(*n).job_id) || ended.contains(&run(*n).job_id);
        prop_assert!((1..=jobs).all(|n| is_finished(&n) || marked.contains(&run(n).job_id)));
        prop_assert_eq!(all.last(), Some(&Command::Exit { clean: (1..=jobs).all(|n| is_finished(&n)) }));
        for command in &all {
            if let Command::Publish { tries, .. } = command {
                prop_assert!(*tries <= max_retries + 1);
            }
        }
    }
}

fn cases(drain: &mut Drain) -> Vec<(RunRef, char, u32)> {
    drain.take_outcomes().into_iter().map(|outcome| (outcome.run, outcome.case.letter(), outcome.tries)).collect()
}

#[test]
fn each_handoff_names_its_case() {
    let (mut drain, _) = drain(3);
    drain.on(ack(1), at(1));
    assert_eq!(cases(&mut drain), [(run(1), 'A', 1)]);
    drain.on(Event::Tick, at(5));
    drain.on(ack(2), at(6));
    assert_eq!(cases(&mut drain), [(run(2), 'B', 2)]);
    for second in [10, 15, 20] {
        drain.on(Event::Tick, at(second));
    }
    assert_eq!(cases(&mut drain), [(run(3), 'C', 4)]);
    drain.on(ack(3), at(21));
    assert_eq!(cases(&mut drain), [(run(3), 'C', 4)], "acknowledged after it was left as an orphan");
    assert_eq!(cases(&mut drain), []);
}

#[test]
fn a_handoff_during_which_all_others_were_silent_is_case_d() {
    let (mut drain, _) = drain(2);
    drain.on(Event::OthersAlive(false), at(1));
    drain.on(Event::OthersAlive(true), at(20));
    drain.on(ack(1), at(21));
    assert_eq!(cases(&mut drain), [(run(1), 'D', 1)]);
    drain.on(Event::Tick, at(9_999));
    assert_eq!(cases(&mut drain), [(run(2), 'D', 2)], "offered again once, then the time was up");
}
