"""Inline mode: jobs run in the test's own process, without a server."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections.abc import Callable

import pytest

import convoke
import convoke.testing


@pytest.fixture
def app() -> convoke.App:
    # Nothing listens there: inline mode must not connect.
    return convoke.App("http://127.0.0.1:9")


def test_a_job_runs_before_enqueue_returns(app: convoke.App) -> None:
    ran = list[tuple[int, str]]()

    @app.job("email.send", queue="mail", max_retries=5)
    def send(run: convoke.Context, to: str) -> int:
        ran.append((os.getpid(), to))
        run.log("on its way")
        run.progress(40, "almost")
        assert convoke.current_run().job_id == run.job_id
        return 250

    with convoke.testing.inline(app):
        sent = send.options(delay="1h", tags=["eu"]).enqueue(to="ada@example.org")
        assert ran == [(os.getpid(), "ada@example.org")]
        assert sent.created and sent.result() == 250
        job = sent.job()
        assert (job.status, job.queue, job.attempt, job.max_retries, job.tags) == ("completed", "mail", 1, 5, ("eu",))
        assert job.progress == convoke.Progress(40, "almost")
        assert [line.message for line in app.client.logs(sent.id)] == ["on its way"]
    with pytest.raises(convoke.ConvokeError, match="outside of a handler"):
        convoke.current_run()


def test_arguments_are_checked_and_go_through_json(app: convoke.App) -> None:
    @app.job("pair")
    def pair(values: tuple[int, int]) -> list[int]:
        return list(values)

    with convoke.testing.inline(app):
        assert pair.enqueue((2**53 + 1, 2)).result() == [2**53 + 1, 2]
        wrong = app.client.enqueue("pair", {"values": [1, "two"]}).wait()
    assert wrong.status == "failed" and wrong.attempt == 1
    assert "values" in (wrong.error or "")


def test_a_failed_attempt_is_repeated_at_once(app: convoke.App) -> None:
    @app.job("flaky")
    def flaky(until: int) -> int:
        if convoke.current_run().attempt < until:
            raise convoke.Retry("not yet", after="1h")
        return convoke.current_run().attempt

    @app.job("never")
    def never() -> None:
        raise convoke.Permanent("no such user")

    with convoke.testing.inline(app):
        assert flaky.enqueue(3).result() == 3
        with pytest.raises(convoke.NotCompleted, match="not yet") as caught:
            flaky.enqueue(9).result()
        assert caught.value.job.attempt == 4, "the first attempt and three retries"
        assert never.enqueue().wait().attempt == 1
        assert app.client.enqueue("nobody").wait().status == "failed"


def test_jobs_may_enqueue_jobs(app: convoke.App) -> None:
    seen = list[int]()

    @app.job("count")
    def count(n: int) -> None:
        seen.append(n)
        if n > 0:
            count.enqueue(n - 1)

    with convoke.testing.inline(app):
        app.enqueue_batch([count.request(2), count.request(0)])
    assert seen == [2, 1, 0, 0]


def test_coroutines_run_from_functions_and_from_event_loops(app: convoke.App) -> None:
    @app.job("async")
    async def double(n: int) -> int:
        await asyncio.sleep(0)
        return 2 * n

    @app.job("sync")
    def triple(n: int) -> int:
        return 3 * n

    async def use() -> list[int]:
        handles = [await double.enqueue_async(1), await triple.enqueue_async(1)]
        return [await handle.result() for handle in handles] + [double.enqueue(5).result()]

    with convoke.testing.inline(app):
        assert double.enqueue(4).result() == 8
        assert asyncio.run(use()) == [2, 3, 10]


def test_what_needs_a_server_says_so(app: convoke.App) -> None:
    @app.job("tick")
    def tick() -> None: ...

    with convoke.testing.inline(app):
        with pytest.raises(convoke.ConvokeError, match=r"use convoke\.testing\.Server"):
            tick.schedule("pulse", convoke.Every("1s"))
        with pytest.raises(convoke.Rejected):
            app.client.job("00000000-0000-7000-8000-000000000000")


def test_the_app_is_itself_again_afterwards(app: convoke.App) -> None:
    client = app.client
    with convoke.testing.inline(app):
        assert app.client is not client
    assert app.client is client


def test_the_fixture_lasts_until_the_test_ends(
    app: convoke.App, convoke_inline: Callable[[convoke.App], None], caplog: pytest.LogCaptureFixture
) -> None:
    threads = list[threading.Thread]()

    @app.job("here")
    def here() -> None:
        threads.append(threading.current_thread())
        logging.getLogger("shop").warning("seen")

    convoke_inline(app)
    here.enqueue().result()
    assert threads == [threading.current_thread()]
    assert "seen" in caplog.text
