"""The run table and its parts, without a server."""

from __future__ import annotations

import json
from typing import Any

from convoke.worker.outbox import Event, Kind, Outbox
from convoke.worker.pace import Pace
from convoke.worker.run import Run
from convoke.worker.run_table import RunTable
from convoke.worker.timers import Timers


def assignment(number: int, **fields: Any) -> dict[str, Any]:
    ids = {"jobId": f"job-{number}", "executionId": f"run-{number}", "type": "t", "queue": "q"}
    return {**ids, "args": {}, "attempt": 1, "maxRetries": 3, **fields}


def ends(table: RunTable) -> list[tuple[str, str]]:
    """Takes the waiting events and returns those that end a run, by run and kind."""
    events = [json.loads(event.text) for event in table.take()]
    return [(event["executionId"], event["kind"]) for event in events if event["kind"] != "started"]


def test_as_many_start_as_there_are_slots_and_the_next_follow() -> None:
    table = RunTable(2)
    first = table.accept([assignment(n) for n in range(3)])
    assert [run.execution_id for run in first] == ["run-0", "run-1"]
    following = table.turn(first[0], first[0].event("completed"))
    assert following is not None and following.execution_id == "run-2"
    assert table.turn(following, following.event("completed")) is None
    assert ends(table) == [("run-0", "completed"), ("run-2", "completed")]


def test_a_run_that_came_twice_starts_once() -> None:
    table = RunTable(5)
    assert len(table.accept([assignment(1), assignment(1)])) == 1
    assert table.accept([assignment(1)]) == []


def test_a_run_is_in_hand_until_its_end_is_accepted() -> None:
    table = RunTable(5)
    (run,) = table.accept([assignment(1)])
    table.turn(run, run.event("completed"))
    assert table.in_hand() == ["run-1"]
    table.accepted(table.take(), set())
    assert table.in_hand() == []


def test_nothing_is_reported_of_a_run_after_it_is_over() -> None:
    table = RunTable(5)
    (run,) = table.accept([assignment(1)])
    assert table.cancel(["run-1", "unknown"]) == 1
    assert run.stopped and table.in_hand() == []
    table.log(run, "too late", "info")
    table.progress(run, 50, None)
    assert table.turn(run, run.event("completed")) is None
    assert table.wait_until_sent(0)


def test_a_rejected_run_is_stopped() -> None:
    table = RunTable(5)
    (run,) = table.accept([assignment(1)])
    interrupted = list[int]()
    run.interrupt = lambda: interrupted.append(1)
    table.log(run, "a line", "info")
    table.accepted(table.take(), {"run-1"})
    assert run.stopped and interrupted == [1] and table.in_hand() == []


def test_the_start_comes_before_the_lines_and_the_lines_are_numbered() -> None:
    table = RunTable(5)
    (run,) = table.accept([assignment(1)])
    table.log(run, "one", "info")
    table.log(run, "two", "warn")
    events = [json.loads(event.text) for event in table.take()]
    assert [(event["kind"], event.get("seq")) for event in events] == [("started", None), ("log", 1), ("log", 2)]


def test_a_fast_run_has_one_event() -> None:
    table = RunTable(5)
    (run,) = table.accept([assignment(1)])
    table.turn(run, run.event("completed"))
    assert [event.kind for event in table.take()] == [Kind.END]


def test_draining_releases_what_waits_and_then_what_runs() -> None:
    table = RunTable(1)
    (run,) = table.accept([assignment(n) for n in range(2)])
    table.stop_fetching()
    assert ends(table) == [("run-1", "released")]
    assert table.accept([assignment(3)]) == []
    assert not table.wait_until_over(0)
    assert table.release_all() == 1 and run.stopped
    assert ends(table) == [("run-0", "released")]
    assert table.wait_until_over(0)


def test_runs_that_were_fetched_ahead_are_released_if_no_slot_is_free() -> None:
    table = RunTable(1)
    table.accept([assignment(n) for n in range(3)])
    assert ends(table) == []  # The start of the first, after a tenth of a second.
    assert ends(table) == [("run-1", "released"), ("run-2", "released")]  # After a second.


def test_a_time_that_is_up_ends_the_run_while_its_handler_goes_on() -> None:
    table = RunTable(1)
    (run,) = table.accept([assignment(1, timeout="50ms")])
    assert ends(table) == [("run-1", "timedOut")]
    assert run.stopped and run.is_over
    assert table.wait_for_room(0) == 0  # The slot is taken until the handler returns.
    table.turn(run, run.event("completed"))
    assert table.wait_for_room(0) == 1


def test_a_finalizer_that_logs_within_the_lock_does_not_deadlock() -> None:
    table = RunTable(1)
    (run,) = table.accept([assignment(1)])
    run.interrupt = lambda: table.log(run, "from within", "info")
    assert table.release_all() == 1


def test_of_progress_in_a_row_the_last_is_kept() -> None:
    outbox, run = Outbox(), Run(assignment(1))
    for text in ("a", "b"):
        outbox.push(Event(run, Kind.PROGRESS, text))
    outbox.push(Event(run, Kind.LOG, "c"))
    outbox.push(Event(run, Kind.PROGRESS, "d"))
    assert [event.text for event in outbox.take()] == ["b", "c", "d"]


def test_a_request_is_bounded_but_never_empty() -> None:
    outbox, run = Outbox(), Run(assignment(1))
    for _ in range(2):
        outbox.push(Event(run, Kind.END, "x" * (6 << 20)))
    assert [len(outbox.take()) for _ in range(3)] == [1, 1, 0]


def test_chatter_has_a_limit_that_what_was_taken_frees() -> None:
    outbox, run = Outbox(), Run(assignment(1))
    while outbox.has_room_for_chatter:
        outbox.push(Event(run, Kind.LOG, "x" * (1 << 20)))
    assert len(outbox) == 8 and outbox.has_room
    while outbox.take():
        pass
    assert outbox.has_room_for_chatter


def test_timers_fire_in_order_and_forget_runs_that_are_over() -> None:
    timers, fired = Timers(), list[str]()
    runs = [Run(assignment(n)) for n in range(3)]
    assert timers.delay_s(0) is None
    assert timers.push(2, runs[0], lambda run: fired.append(run.execution_id))
    assert timers.push(1, runs[1], lambda run: fired.append(run.execution_id))
    assert not timers.push(3, runs[2], lambda run: fired.append(run.execution_id))
    assert timers.delay_s(0.5) == 0.5
    runs[0].is_over = True
    for run, action in timers.pop_due(5):
        action(run)
    assert fired == ["run-1", "run-2"]


def test_timers_of_ended_runs_do_not_pile_up() -> None:
    timers, run = Timers(), Run(assignment(1))
    run.is_over = True
    for n in range(100_000):
        timers.push(1e9 + n, run, lambda run: None)
    assert len(timers._heap) <= 1_001  # pyright: ignore[reportPrivateUsage]


def test_short_runs_are_fetched_ahead_and_long_ones_are_not() -> None:
    pace = Pace()
    assert pace.prefetch(100) == 0
    for _ in range(100):
        pace.ended(0.00002)
    assert pace.prefetch(10) == 1_000
    for _ in range(3):
        pace.ended(1.0)
    assert pace.prefetch(10) == 0
