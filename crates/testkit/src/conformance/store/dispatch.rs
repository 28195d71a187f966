//! Promotion and dispatch: who is served, in which order, how many.

use convoke_core::jobs::dispatch::{Choice, Head, Room};
use convoke_core::jobs::{NewJob, Outcome, Ownership, Priority, QueuePatch, Status};
use convoke_core::limits::{ARGS_BYTES_MAX, DISPATCH_BYTES_MAX};
use convoke_core::ports::Store;
use convoke_core::ports::store::{DispatchOrder, InFlightFilter, OwnerShare, Promoted, QueueDispatch, Window};
use convoke_core::{Epoch, JobId, QueueName};

use super::stage::*;

pub async fn due_jobs_are_promoted_and_no_others(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let due = |n: u64, second: i64, name: &str| NewJob {
        run_at: Some(at(second)),
        ..job(n).with(|job| job.queue = queue(name))
    };
    stage.enqueue([due(1, 10, "b"), due(2, 20, "a"), due(3, 30, "b"), due(4, 40, "a")]).await;
    let none = store.promote(stage.fence, at(9), 10).await.expect("promote");
    assert_eq!(none, Promoted { count: 0, queues: vec![], next_due_at: Some(at(10)) });
    let mut two = store.promote(stage.fence, at(20), 10).await.expect("promote");
    two.queues.sort();
    assert_eq!(two, Promoted { count: 2, queues: vec![queue("a"), queue("b")], next_due_at: Some(at(30)) });
    let one = store.promote(stage.fence, at(99), 1).await.expect("promote");
    assert_eq!(one, Promoted { count: 1, queues: vec![queue("b")], next_due_at: Some(at(40)) });
    let last = store.promote(stage.fence, at(99), 10).await.expect("promote");
    assert_eq!(last, Promoted { count: 1, queues: vec![queue("a")], next_due_at: None });
    for n in 1..=4 {
        assert_eq!(stage.job(job_id(n)).await.status, Status::Pending);
    }
    assert_eq!(stage.queue("b").await.oldest_pending_at, Some(at(10)), "since when it could have run");
    stage.assert_counters().await;
}

pub async fn a_scheduled_job_is_not_dispatched(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([NewJob { run_at: Some(at(10)), ..job(1) }]).await;
    assert!(stage.dispatch("q", 5, at(5)).await.is_empty());
}

pub async fn a_dispatch_carries_what_a_worker_needs(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let new = job(1).with(|job| {
        job.timeout = Some(seconds(30));
        job.correlation_id = Some("c".into());
        job.tags = vec!["t".into()];
    });
    stage.enqueue([new.clone()]).await;
    let order = stage.order("q", 1, at(3));
    let execution = order.executions[0];
    let run = store.dispatch(stage.fence, order).await.expect("dispatch").runs.remove(0);
    assert_eq!((run.job_id, run.execution_id, run.epoch), (job_id(1), execution, Epoch(1)));
    assert_eq!(
        (&run.input.job_type, &run.input.queue, &run.input.args),
        (&new.definition.job_type, &new.definition.queue, &new.definition.args)
    );
    assert_eq!((run.attempt, run.input.max_retries, run.input.timeout), (1, 3, new.definition.timeout));
    assert_eq!(run.input.correlation_id, new.definition.correlation_id);
    assert_eq!(run.input.tags, ["t"]);
    let job = stage.job(job_id(1)).await;
    assert_eq!((job.status, job.execution_id, job.attempt), (Status::Dispatched, Some(execution), 1));
    assert_eq!((job.dispatched_at, job.started_at, job.retry_count), (Some(at(3)), None, 0));
}

pub async fn a_window_bounds_what_is_taken_and_tells_what_is_left(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=5).map(job)).await;
    stage.enqueue((6..=8).map(|n| job(n).with(|job| job.queue = queue("b")))).await;
    let window = |name: &str, limit| Window::new(queue(name), limit);
    let windows = vec![window("b", 1), window("empty", 4), window("q", 3), window("b", 9), window("q", 0)];
    let order = DispatchOrder { now: at(1), windows, executions: stage.executions(20) };
    let result = store.dispatch(stage.fence, order).await.expect("dispatch");
    let reported = |name: &str, taken, pending| QueueDispatch { queue: queue(name), taken, pending, is_cut: false };
    let expected =
        [reported("b", 1, 2), reported("empty", 0, 0), reported("q", 3, 2), reported("b", 2, 0), reported("q", 0, 2)];
    assert_eq!(result.queues, expected);
    assert_eq!(result.runs.len(), 6);
    let mut executions: Vec<_> = result.runs.iter().map(|run| run.execution_id).collect();
    executions.sort();
    executions.dedup();
    assert_eq!(executions.len(), 6, "an execution is given once");
    assert!(store.queue(&queue("empty")).await.expect("queue").is_none(), "a window opens no queue");
}

pub async fn the_owners_that_a_window_names_own_its_first_runs(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1), job(2).with(|job| job.priority = Priority::High)]).await;
    stage.enqueue((3..=6).map(job)).await;
    stage.enqueue((7..=9).map(|n| job(n).with(|job| job.queue = queue("b")))).await;
    let share = |name: &str, runs| OwnerShare { node: node(name), runs };
    let first = Window { owners: vec![share("n1", 2), share("n2", 1)], ..Window::new(queue("q"), 5) };
    let second = Window { owners: vec![share("n2", 9)], ..Window::new(queue("b"), 2) };
    let order = DispatchOrder { now: at(1), windows: vec![first, second], executions: stage.executions(7) };
    let runs = store.dispatch(stage.fence, order).await.expect("dispatch").runs;
    let mut owners = Vec::new();
    for run in &runs {
        let job = stage.job(run.job_id).await;
        assert_eq!(job.ownership == Ownership::Owned, job.owner_node.is_some());
        owners.push((job.id, job.owner_node));
    }
    let (n1, n2) = (Some(node("n1")), Some(node("n2")));
    let expected = [(2, n1.clone()), (1, n1), (3, n2.clone()), (4, None), (5, None), (7, n2.clone()), (8, n2.clone())];
    assert_eq!(owners, expected.map(|(n, owner)| (job_id(n), owner)), "in the order of dispatch");
    let of_n2 = InFlightFilter { owner: n2, ..Default::default() };
    let found = store.in_flight(of_n2, None, 9).await.expect("in flight");
    assert_eq!(found.iter().map(|run| run.job).collect::<Vec<_>>(), [3, 7, 8].map(job_id));
    assert_eq!(store.holders().await.expect("holders").owners, [node("n1"), node("n2")]);
    // A run that is released has no owner any more.
    stage.end(&runs[0], at(2), Outcome::Released).await;
    assert_eq!(stage.job(job_id(2)).await.owner_node, None);
    let again = stage.dispatch_one(at(3)).await;
    assert_eq!((again.job_id, again.attempt), (job_id(2), 1));
    assert_eq!(stage.job(job_id(2)).await.owner_node, None);
    stage.assert_counters().await;
}

pub async fn a_job_is_dispatched_once(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=3).map(job)).await;
    assert_eq!(stage.dispatch("q", 2, at(1)).await.len(), 2);
    assert_eq!(stage.dispatch("q", 2, at(1)).await.len(), 1);
    assert!(stage.dispatch("q", 2, at(1)).await.is_empty());
}

pub async fn no_more_is_dispatched_than_there_are_executions(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=3).map(job)).await;
    let order = DispatchOrder { executions: stage.executions(2), ..stage.order("q", 3, at(1)) };
    let result = store.dispatch(stage.fence, order).await.expect("dispatch");
    assert_eq!((result.runs.len(), result.queues[0].taken, result.queues[0].pending), (2, 2, 1));
}

pub async fn a_dispatch_ends_when_its_bytes_are_used_up(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let fitting = DISPATCH_BYTES_MAX / ARGS_BYTES_MAX;
    let large = |n: u64| job(n).with(|job| job.args = large_args(ARGS_BYTES_MAX));
    let first = |n: u64| job(n).with(|job| job.queue = queue("a"));
    stage.enqueue((1..=2).map(first)).await;
    // In two batches, so that no one of them is larger than a client's may be.
    stage.enqueue((3..=9).map(large)).await;
    stage.enqueue((10..=18).map(large)).await;
    stage.enqueue([job(19).with(|job| job.queue = queue("z"))]).await;
    let window = |name: &str| Window { metered: Some(seconds(3_600)), ..Window::new(queue(name), 50) };
    let order = || {
        let windows = ["a", "q", "z"].map(window).to_vec();
        DispatchOrder { now: at(1), windows, executions: stage.executions(50) }
    };
    let mut served = Vec::new();
    let mut taken = Vec::new();
    loop {
        let result = store.dispatch(stage.fence, order()).await.expect("dispatch");
        let bytes: usize = result.runs.iter().map(|run| run.input.args.as_str().len()).sum();
        assert!(bytes <= DISPATCH_BYTES_MAX, "{bytes} bytes in one dispatch");
        for queue in &result.queues {
            assert_eq!(queue.is_cut, queue.pending > 0, "what is left was cut off by the bytes: {queue:?}");
        }
        served.extend(result.runs.iter().map(|run| run.job_id));
        taken.push(result.queues.iter().map(|queue| queue.taken).collect::<Vec<_>>());
        if result.queues.iter().all(|queue| queue.pending == 0) {
            break;
        }
    }
    assert_eq!(served, (1..=19).map(job_id).collect::<Vec<_>>(), "all are served, in order");
    assert_eq!(taken[0], [2, fitting - 1, 0], "the window after the one that was cut gets nothing");
    assert_eq!(taken.len(), 3);
    assert_eq!(
        store.grants(Some(&queue("q")), at(0)).await.expect("grants").iter().map(|grant| grant.1).sum::<u32>(),
        16
    );
    stage.assert_counters().await;
}

pub async fn a_job_larger_than_the_bytes_left_waits_for_the_next_dispatch(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let of = |n: u64, bytes: usize| job(n).with(|job| job.args = large_args(bytes));
    stage.enqueue([of(1, 1_000)]).await;
    stage.enqueue((2..=9).map(|n| of(n, ARGS_BYTES_MAX))).await;
    stage.enqueue([of(10, 1_000)]).await;
    let first: Vec<_> = stage.dispatch("q", 20, at(1)).await.iter().map(|run| run.job_id).collect();
    assert_eq!(first, (1..=8).map(job_id).collect::<Vec<_>>(), "a small job does not overtake one that did not fit");
    assert_eq!(stage.dispatch("q", 20, at(1)).await.len(), 2);
}

pub async fn first_stored_is_first_served(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(3), job(1)]).await;
    stage.enqueue([job(2)]).await;
    let served: Vec<_> = stage.dispatch("q", 9, at(1)).await.iter().map(|run| run.job_id).collect();
    assert_eq!(served, [job_id(3), job_id(1), job_id(2)]);
}

pub async fn the_higher_priority_is_served_first(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage
        .enqueue(Priority::ALL.into_iter().zip(1..).map(|(priority, n)| job(n).with(|job| job.priority = priority)))
        .await;
    for n in (1..=4).rev() {
        assert_eq!(stage.dispatch_one(at(1)).await.job_id, job_id(n));
    }
}

pub async fn priorities_age_so_that_none_starves(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let late =
        |n: u64, priority, second: i64| NewJob { created_at: at(second), ..job(n).with(|job| job.priority = priority) };
    stage
        .enqueue([
            late(1, Priority::Low, 0),
            late(2, Priority::Critical, 179),
            late(3, Priority::Critical, 181),
            late(4, Priority::Normal, 59),
            late(5, Priority::Normal, 61),
            late(6, Priority::High, 119),
        ])
        .await;
    let served: Vec<_> = stage.dispatch("q", 9, at(200)).await.iter().map(|run| run.job_id).collect();
    let (before, after) = served.split_at(3);
    for n in [2, 4, 6] {
        assert!(before.contains(&job_id(n)), "{n} has the head start");
    }
    assert_eq!(after[0], job_id(1), "the low one has waited long enough");
}

pub async fn a_retry_is_ranked_by_when_it_is_due(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let run = stage.run(job(1)).await;
    stage.end(&run, at(5), failed("x")).await;
    stage.enqueue([NewJob { created_at: at(10), ..job(2) }]).await;
    store.promote(stage.fence, at(15), 9).await.expect("promote");
    assert_eq!(stage.dispatch_one(at(16)).await.job_id, job_id(2));
    assert_eq!(stage.dispatch_one(at(16)).await.job_id, job_id(1));
}

pub async fn a_paused_queue_is_skipped_and_hinders_no_other(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue([job(1), job(2).with(|job| job.queue = queue("b"))]).await;
    store.configure(&queue("q"), QueuePatch { paused: Some(true), ..Default::default() }).await.expect("pause");
    let window = |name: &str| Window { metered: Some(seconds(3_600)), ..Window::new(queue(name), 5) };
    let order = DispatchOrder { now: at(1), windows: vec![window("q"), window("b")], executions: stage.executions(10) };
    let result = store.dispatch(stage.fence, order).await.expect("dispatch");
    assert_eq!((result.queues[0].taken, result.queues[0].pending, result.queues[1].taken), (0, 1, 1));
    assert_eq!(result.runs[0].job_id, job_id(2));
    store.configure(&queue("q"), QueuePatch { paused: Some(false), ..Default::default() }).await.expect("resume");
    assert_eq!(stage.dispatch_one(at(2)).await.job_id, job_id(1));
}

pub async fn a_dispatch_takes_what_the_rule_of_room_says(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let mut number = 0;
    for paused in [false, true] {
        for concurrency in [None, Some(1), Some(3), Some(9)] {
            for (in_flight, limit) in [(0, 0), (0, 2), (2, 2), (4, 5)] {
                let name = format!("{paused}-{concurrency:?}-{in_flight}-{limit}");
                let jobs = (number..number + 6).map(|n| job(n + 1).with(|job| job.queue = queue(&name)));
                stage.enqueue(jobs).await;
                number += 6;
                assert_eq!(stage.dispatch(&name, in_flight, at(1)).await.len(), in_flight);
                let patch = QueuePatch { paused: Some(paused), concurrency: Some(concurrency), ..Default::default() };
                store.configure(&queue(&name), patch).await.expect("configure");
                let (concurrency, in_flight) = (concurrency.map(u64::from), in_flight as u64);
                let room = Room { paused, concurrency, in_flight }.within(limit);
                let taken = stage.dispatch(&name, limit, at(2)).await.len();
                assert_eq!(taken, room.min(6 - in_flight as usize), "{name}");
            }
        }
    }
}

/// A queue of the generated ones: its settings and its pending jobs.
struct Generated {
    name: QueueName,
    paused: bool,
    concurrency: Option<u64>,
    in_flight: u64,
    pending: Vec<(Head, JobId)>,
}

pub async fn a_dispatch_takes_the_heads_that_the_rule_of_choice_says(store: &dyn Store) {
    let stage = Stage::new(store).await;
    let (mut dice, mut number) = (Dice(7), 0);
    // In the last of them jobs are so large that the bytes of a dispatch are used up.
    for (round, is_large) in [false, false, false, false, false, false, true, true].into_iter().enumerate() {
        let mut queues = Vec::new();
        for place in 0..=dice.roll(3) {
            let name = queue(&format!("round-{round}-{place}"));
            let mut pending = Vec::new();
            // In several inserts, whose jobs overlap in rank.
            for _ in 0..=dice.roll(3) {
                let mut jobs = Vec::new();
                for _ in 0..=dice.roll(if is_large { 5 } else { 12 }) {
                    number += 1;
                    let priority = Priority::ALL[dice.roll(Priority::ALL.len() as u64) as usize];
                    let bytes = if is_large { ARGS_BYTES_MAX - dice.roll(3) as usize * 300_000 } else { 10 };
                    let made = NewJob {
                        created_at: at(dice.roll(200) as i64),
                        ..job(number).with(|job| {
                            job.queue = name.clone();
                            job.priority = priority;
                            job.args = large_args(bytes);
                        })
                    };
                    let rank = priority.rank(made.due_at());
                    pending.push((Head { rank, seq: number, args_bytes: bytes }, made.id));
                    jobs.push(made);
                }
                stage.enqueue(jobs).await;
            }
            pending.sort();
            let (paused, concurrency) = (dice.roll(6) == 0, (dice.roll(2) == 0).then(|| 1 + dice.roll(9)));
            let limit = concurrency.map(|most| u32::try_from(most).expect("few"));
            let patch = QueuePatch { paused: Some(paused), concurrency: Some(limit), ..Default::default() };
            store.configure(&name, patch).await.expect("configure");
            queues.push(Generated { name, paused, concurrency, in_flight: 0, pending });
        }
        for _ in 0..4 {
            // A queue may have several windows.
            let windows: Vec<(usize, usize)> =
                (0..=dice.roll(4)).map(|_| (dice.roll(queues.len() as u64) as usize, dice.roll(15) as usize)).collect();
            let total: usize = windows.iter().map(|(_, limit)| limit).sum();
            // With too few executions no bytes are used up: a store need not find out what was left for which reason.
            let executions = if is_large { total } else { total - dice.roll(total as u64 / 2 + 1) as usize };
            let mut choice = Choice::new(executions);
            let (mut expected_runs, mut expected_queues) = (Vec::new(), Vec::new());
            for (place, limit) in &windows {
                let queue = &mut queues[*place];
                let Generated { paused, concurrency, in_flight, .. } = *queue;
                let mut window = choice.window(Room { paused, concurrency, in_flight }, *limit);
                let heads: Vec<Head> = queue.pending.iter().map(|(head, _)| *head).collect();
                let taken = window.count(&heads);
                expected_runs.extend(queue.pending.drain(..taken).map(|(_, id)| id));
                queue.in_flight += taken as u64;
                let (pending, is_cut) = (queue.pending.len() as u64, window.is_cut());
                expected_queues.push(QueueDispatch { queue: queue.name.clone(), taken, pending, is_cut });
            }
            let ordered =
                windows.iter().map(|(place, limit)| Window::new(queues[*place].name.clone(), *limit)).collect();
            let order = DispatchOrder { now: at(300), windows: ordered, executions: stage.executions(executions) };
            let result = store.dispatch(stage.fence, order).await.expect("dispatch");
            let runs: Vec<JobId> = result.runs.iter().map(|run| run.job_id).collect();
            assert_eq!(runs, expected_runs, "round {round}: {windows:?}");
            assert_eq!(result.queues, expected_queues, "round {round}: {windows:?}");
            assert!(result.unreadable.is_empty());
        }
    }
    stage.assert_counters().await;
}

pub async fn concurrency_bounds_what_is_in_flight(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=6).map(job)).await;
    let limit = |most| QueuePatch { concurrency: Some(most), ..Default::default() };
    store.configure(&queue("q"), limit(Some(2))).await.expect("limit");
    let window = || Window::new(queue("q"), 5);
    let order = DispatchOrder { now: at(1), windows: vec![window(), window()], executions: stage.executions(10) };
    let runs = store.dispatch(stage.fence, order).await.expect("dispatch").runs;
    assert_eq!(runs.len(), 2, "also over two windows of one order");
    stage.start(&runs[0], "w", at(2)).await;
    assert!(stage.dispatch("q", 5, at(2)).await.is_empty(), "running is in flight too");
    stage.end(&runs[0], at(3), completed()).await;
    assert_eq!(stage.dispatch("q", 5, at(3)).await.len(), 1);
    store.configure(&queue("q"), limit(Some(1))).await.expect("limit");
    assert!(stage.dispatch("q", 5, at(4)).await.is_empty(), "more in flight than now allowed");
    store.configure(&queue("q"), limit(None)).await.expect("no limit");
    assert_eq!(stage.dispatch("q", 5, at(5)).await.len(), 3);
}

pub async fn metered_windows_leave_a_record_of_what_was_granted(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=9).map(job)).await;
    let hour = Some(seconds(3_600));
    for (second, limit, metered) in [(1, 2, hour), (2, 3, None), (3, 1, hour), (4, 9, hour), (5, 9, hour)] {
        let windows = vec![Window { metered, ..Window::new(queue("q"), limit) }];
        let order = DispatchOrder { now: at(second), windows, executions: stage.executions(limit) };
        store.dispatch(stage.fence, order).await.expect("dispatch");
    }
    let grants = async |since| store.grants(Some(&queue("q")), at(since)).await.expect("grants");
    assert_eq!(grants(0).await, [(at(1), 2), (at(3), 1), (at(4), 3)], "nothing is recorded if nothing was granted");
    assert_eq!(grants(3).await, [(at(3), 1), (at(4), 3)]);
    assert!(grants(5).await.is_empty());
    assert!(store.grants(Some(&queue("nowhere")), at(0)).await.expect("grants").is_empty());
}

pub async fn grants_of_all_queues_are_read_together_for_as_long_as_they_are_to_be_kept(store: &dyn Store) {
    let stage = Stage::new(store).await;
    stage.enqueue((1..=4).map(job)).await;
    stage.enqueue((5..=8).map(|n| job(n).with(|job| job.queue = queue("b")))).await;
    let grant = async |name: &str, second, kept| {
        let windows = vec![Window { metered: Some(seconds(kept)), ..Window::new(queue(name), 1) }];
        let order = DispatchOrder { now: at(second), windows, executions: stage.executions(1) };
        store.dispatch(stage.fence, order).await.expect("dispatch");
    };
    for (name, second) in [("q", 1), ("b", 2), ("q", 3), ("b", 4)] {
        grant(name, second, 60).await;
    }
    let all = async |since| store.grants(None, at(since)).await.expect("grants");
    assert_eq!(all(0).await, [(at(1), 1), (at(2), 1), (at(3), 1), (at(4), 1)]);
    assert_eq!(all(3).await, [(at(3), 1), (at(4), 1)]);
    grant("q", 10, 5).await;
    assert_eq!(all(0).await, [(at(2), 1), (at(4), 1), (at(10), 1)], "those of that queue that are older are forgotten");
}
