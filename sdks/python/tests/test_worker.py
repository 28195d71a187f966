"""The worker against a real server: handlers, their context, their ends."""

from __future__ import annotations

import asyncio
import contextvars
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

import pytest

import convoke
from conformance.server import Server
from conftest import Running

Start = Callable[[convoke.Worker], Running]


@dataclass
class Receipt:
    to: str
    parts: list[int]


def test_functions_and_coroutines_return_typed_results(app: convoke.App, queue: str, start: Start) -> None:
    @app.job("sync", queue=queue)
    def sync(to: str) -> Receipt:
        return Receipt(to, [1, 2])

    @app.job("async", queue=queue)
    async def coroutine(to: str, n: int = 10**30) -> dict[str, int]:
        await asyncio.sleep(0)
        return {to: n}

    start(convoke.Worker(app))
    assert sync.enqueue(to="a").result("10s") == Receipt("a", [1, 2])
    assert coroutine.enqueue("b").result("10s") == {"b": 10**30}
    assert sync("c") == Receipt("c", [1, 2])
    assert asyncio.run(coroutine("d", 1)) == {"d": 1}


def test_the_context_knows_the_run(app: convoke.App, queue: str, start: Start) -> None:
    @app.job("seen", queue=queue, timeout="30s", max_retries=2, tags=["t"], correlation_id="c")
    def seen(context: convoke.Context, n: int) -> list[Any]:
        assert convoke.current_run() is context and not context.cancelled and context.deadline is not None
        left_s = (context.deadline - datetime.now(timezone.utc)).total_seconds()
        assert 20 < left_s <= 30
        return [context.job_id, context.attempt, context.max_retries, context.queue, context.type, context.tags]

    start(convoke.Worker(app))
    handle = seen.enqueue(7)
    assert handle.result("10s") == [handle.id, 1, 2, queue, "seen", ["t"]]
    with pytest.raises(convoke.ConvokeError, match="outside of a handler"):
        convoke.current_run()


def test_logging_reaches_the_log_of_the_job(app: convoke.App, queue: str, start: Start) -> None:
    log, handler = logging.getLogger("shop"), convoke.LogHandler()
    log.setLevel("DEBUG")

    def write(name: str) -> None:
        log.debug("%s 1", name)
        log.warning("%s 2", name)
        logging.getLogger("convoke.worker").warning("not of the job")
        convoke.current_run().log(f"{name} 3", "error")

    @app.job("sync-log", queue=queue)
    def sync() -> None:
        write("sync")

    @app.job("async-log", queue=queue)
    async def coroutine() -> None:
        await asyncio.sleep(0)
        write("async")

    logging.getLogger().addHandler(handler)
    try:
        start(convoke.Worker(app))
        for job, name in ((sync, "sync"), (coroutine, "async")):
            handle = job.enqueue()
            handle.result("10s")
            lines = [(line.level, line.message) for line in app.client.logs(handle.id)]
            assert lines == [("debug", f"{name} 1"), ("warn", f"{name} 2"), ("error", f"{name} 3")]
        log.warning("outside of a run")
    finally:
        logging.getLogger().removeHandler(handler)


def test_an_exception_is_the_error_and_its_traceback_is_in_the_log(app: convoke.App, queue: str, start: Start) -> None:
    @app.job("broken", queue=queue, max_retries=0)
    def broken() -> None:
        raise KeyError("no such order")

    start(convoke.Worker(app))
    job = broken.enqueue().wait("10s")
    assert (job.status, job.error) == ("failed", "KeyError: 'no such order'")
    (line,) = app.client.logs(job.id)
    assert line.level == "error" and "in broken" in line.message


@pytest.mark.parametrize(
    "error", [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), RecursionError("deep")]
)
def test_no_exception_ends_the_worker(app: convoke.App, queue: str, start: Start, error: BaseException) -> None:
    @app.job("sync-raise", queue=queue, max_retries=0)
    def sync() -> None:
        raise error

    @app.job("async-raise", queue=queue, max_retries=0)
    async def coroutine() -> None:
        raise error

    @app.job("fine", queue=queue)
    def fine() -> int:
        return 1

    start(convoke.Worker(app, concurrency=1))
    assert [job.enqueue().wait("10s").status for job in (sync, coroutine)] == ["failed", "failed"]
    assert fine.enqueue().result("10s") == 1


def test_retry_waits_and_permanent_does_not_retry(app: convoke.App, queue: str, start: Start) -> None:
    times = list[float]()

    @app.job("later", queue=queue, max_retries=3)
    async def later(context: convoke.Context) -> int:
        times.append(time.monotonic())
        if context.attempt == 1:
            raise convoke.Retry("rate limited", after="700ms")
        return context.attempt

    @app.job("never", queue=queue, max_retries=3)
    def never() -> None:
        raise convoke.Permanent("no such user")

    start(convoke.Worker(app, concurrency=1))
    handle = later.enqueue()
    job = never.enqueue().wait("10s")  # The only slot is free while the first job is kept.
    assert (job.status, job.error, job.attempt) == ("failed", "no such user", 1)
    assert handle.result("10s") == 2
    assert times[1] - times[0] >= 0.7


def test_a_kept_retry_does_not_delay_the_end_of_the_worker(app: convoke.App, queue: str, start: Start) -> None:
    @app.job("kept", queue=queue, max_retries=0)
    def kept() -> None:
        raise convoke.Retry(after="1h")

    running = start(convoke.Worker(app))
    handle = kept.enqueue()
    while handle.job().status in ("pending", "dispatched"):
        time.sleep(0.01)
    running.stop(5)
    assert handle.job().status == "failed"


def test_arguments_that_do_not_fit_fail_for_good(app: convoke.App, queue: str, start: Start) -> None:
    calls = list[int]()

    @app.job("strict", queue=queue)
    def strict(count: int) -> None:
        calls.append(count)

    start(convoke.Worker(app))
    job = app.client.enqueue("strict", {"count": "x"}, queue=queue).wait("10s")
    assert job.error == "the arguments do not fit strict: count: expected an integer, got 'x'"
    assert (job.attempt, calls) == (1, [])


@dataclass
class Even:
    n: int

    def __post_init__(self) -> None:
        if self.n % 2:
            raise ValueError(f"{self.n} is odd")


class Silent(Exception):
    def __str__(self) -> str:
        raise RuntimeError("not shown")


def test_a_class_that_raises_fails_its_job_and_nothing_else(app: convoke.App, queue: str, start: Start) -> None:
    @app.job("even", queue=queue, max_retries=0)
    def even(number: Even) -> int:
        return number.n

    @app.job("even-async", queue=queue, max_retries=0)
    async def even_async(number: Even) -> int:
        return number.n

    @app.job("silent", queue=queue, max_retries=0)
    def silent() -> None:
        raise Silent

    @app.job("silent-for-good", queue=queue)
    def silent_for_good() -> None:
        raise type("SilentForGood", (Silent, convoke.Permanent), {})

    @app.job("unwritten", queue=queue)
    def unwritten() -> Any:
        return type("Unwritten", (), {"model_dump": lambda self, mode: 1 / 0})()

    @app.job("wrong-retry", queue=queue, max_retries=0)
    def wrong_retry() -> None:
        raise convoke.Retry(after="soon")

    start(convoke.Worker(app, concurrency=1))
    for type_ in ("even", "even-async"):
        job = app.client.enqueue(type_, {"n": 3}, queue=queue).wait("10s")
        assert job.status == "failed" and "3 is odd" in (job.error or "")
    others = [each.enqueue().wait("10s") for each in (silent, silent_for_good, unwritten, wrong_retry)]
    assert [job.status for job in others] == ["failed"] * 4
    assert even.enqueue(Even(2)).result("10s") == even_async.enqueue(Even(2)).result("10s") == 2


@pytest.mark.parametrize("result", [{1, object()}, float("nan"), "x" * (1 << 20), "\ud800"])
def test_a_result_that_cannot_be_sent_fails_for_good(app: convoke.App, queue: str, start: Start, result: Any) -> None:
    @app.job("result", queue=queue)
    def returns() -> Any:
        return result

    start(convoke.Worker(app))
    job = returns.enqueue().wait("10s")
    assert (job.status, job.attempt) == ("failed", 1) and (job.error or "").startswith("result: ")


def test_a_timeout_frees_the_slot_of_a_coroutine(app: convoke.App, queue: str, start: Start) -> None:
    @app.job("slow", queue=queue, timeout="200ms", max_retries=0)
    async def slow() -> None:
        await asyncio.sleep(3600)

    start(convoke.Worker(app, concurrency=1))
    for _ in range(2):
        job = slow.enqueue().wait("10s")
        # Said by the worker or by the server, whichever is first.
        assert job.status == "timedOut" and "took longer" in (job.error or "")


def test_a_cancelled_coroutine_is_interrupted_also_if_all_slots_are_taken(
    app: convoke.App, queue: str, start: Start
) -> None:
    interrupted = threading.Event()

    @app.job("endless", queue=queue)
    async def endless(context: convoke.Context) -> None:
        try:
            await asyncio.sleep(3600)
        finally:
            assert context.cancelled
            interrupted.set()

    start(convoke.Worker(app, concurrency=1))
    handle = endless.enqueue()
    while handle.job().status != "running":
        time.sleep(0.01)
    handle.cancel()
    assert interrupted.wait(10)


def test_what_a_handler_sets_is_not_seen_by_the_next(app: convoke.App, queue: str, start: Start) -> None:
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="unset")

    @app.job("sets", queue=queue)
    def sets() -> str:
        before = variable.get()
        variable.set("set")
        return before

    start(convoke.Worker(app, concurrency=1))
    assert [sets.enqueue().result("10s") for _ in range(3)] == ["unset"] * 3


def test_concurrency_is_a_limit_over_both_kinds(app: convoke.App, queue: str, start: Start) -> None:
    lock, now, most = threading.Lock(), 0, 0

    def enter(step: int) -> None:
        nonlocal now, most
        with lock:
            now += step
            most = max(most, now)

    @app.job("sync-busy", queue=queue)
    def sync() -> None:
        enter(1)
        time.sleep(0.02)
        enter(-1)

    @app.job("async-busy", queue=queue)
    async def coroutine() -> None:
        enter(1)
        await asyncio.sleep(0.02)
        enter(-1)

    handles = app.enqueue_batch([job.request() for _ in range(30) for job in (sync, coroutine)])
    start(convoke.Worker(app, concurrency=4))
    for handle in handles:
        handle.result("20s")
    assert most == 4


def test_a_job_that_blocks_the_loop_is_named_and_keeps_its_run(
    own_server: Server, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    app = convoke.App(own_server.url)

    @app.job("blocks", max_retries=0)
    async def blocks() -> str:
        time.sleep(4)  # Twice as long as the server waits for a sign of life.
        return "kept"

    start(convoke.Worker(app))
    handle = blocks.enqueue()
    assert handle.result("20s") == "kept"
    lines = [record.getMessage() for record in caplog.records if "event loop blocked" in record.getMessage()]
    assert len(lines) == 1 and handle.id in lines[0] and "type=blocks" in lines[0] and "test_worker.py:" in lines[0]


def test_lines_are_bounded_while_the_server_is_away(
    own_server: Server, start: Start, caplog: pytest.LogCaptureFixture
) -> None:
    app = convoke.App(own_server.url)
    killed, written = threading.Event(), threading.Event()

    @app.job("chatty", max_retries=0)
    def chatty(context: convoke.Context) -> str:
        context.log("first")
        killed.wait()
        for n in range(30_000):  # Beyond a full outbox beside a full report that is under way.
            context.log(f"line {n}")
        written.set()
        return "done"

    running = start(convoke.Worker(app))
    handle = chatty.enqueue()
    while not app.client.logs(handle.id):
        time.sleep(0.01)
    own_server.kill()
    killed.set()
    assert written.wait(10)
    own_server.start()
    assert handle.result("20s") == "done"
    running.stop()
    assert len(app.client.logs(handle.id)) == 1_000  # A page.
    assert any("dropped" in record.getMessage() for record in caplog.records)
