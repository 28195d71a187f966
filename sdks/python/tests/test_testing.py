"""The test server: time that the test moves, faults, and the fixtures of the plugin."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

import convoke
import convoke.testing
from conftest import binary


@pytest.fixture(autouse=True)
def _program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CONVOKE_BIN", binary())


StartWorker = Callable[..., convoke.Worker]


def test_time_stands_still_until_the_test_moves_it(
    convoke_server: convoke.testing.Server, convoke_worker: StartWorker
) -> None:
    app = convoke.App()

    @app.job("remind")
    def remind(who: str) -> str:
        return f"reminded {who}"

    convoke_worker(app)
    before = convoke_server.now
    later = remind.options(delay="24h").enqueue(who="ada")
    now = remind.enqueue(who="bob")
    convoke_server.run_until_idle()
    assert now.job().status == "completed"
    assert later.job().status == "scheduled"
    convoke_server.advance("23h59m")
    assert later.job().status == "scheduled"
    moved = convoke_server.advance(timedelta(minutes=1))
    assert moved == convoke.testing.Moved(before + timedelta(hours=24), 0)
    assert later.job().status == "completed" and later.result() == "reminded ada"


def test_retries_and_schedules_happen_in_virtual_time(
    convoke_server: convoke.testing.Server, convoke_worker: StartWorker
) -> None:
    app, attempts, ticks = convoke.App(), list[int](), list[int]()

    @app.job(
        "flaky",
        max_retries=3,
        retry_policy={"initial_delay": "1h", "multiplier": 2, "max_delay": "8h", "jitter": "none"},
    )
    def flaky() -> None:
        attempts.append(convoke.current_run().attempt)
        if len(attempts) < 3:
            raise RuntimeError("not yet")

    @app.job("tick")
    async def tick() -> None:
        await asyncio.sleep(0)
        ticks.append(1)

    convoke_worker(app)
    handle = flaky.enqueue()
    convoke_server.run_until_idle()
    assert attempts == [1]
    convoke_server.advance("1h")
    assert attempts == [1, 2]
    convoke_server.advance("119m")
    assert attempts == [1, 2]
    convoke_server.advance("1m")
    assert attempts == [1, 2, 3] and handle.job().status == "completed"
    tick.schedule("daily", convoke.Every("24h"))
    convoke_server.advance("72h")
    assert len(ticks) == 3


def test_a_run_whose_report_fails_is_reported_again(
    convoke_server: convoke.testing.Server, convoke_worker: StartWorker
) -> None:
    app = convoke.App()

    @app.job("once")
    def once() -> int:
        return convoke.current_run().attempt

    convoke_worker(app)
    convoke_server.fail_reports(2)
    assert once.enqueue().result("20s") == 1
    convoke_server.lose_replies(1)
    handle = once.enqueue()
    assert handle.result("20s") == 1
    convoke_server.kill_leader()
    assert once.enqueue().result("20s") == 1
    convoke_server.clear_faults()


def test_the_clock_can_be_set_and_the_seed_decides(tmp_path: Path) -> None:
    start = datetime(2031, 5, 6, 7, 8, tzinfo=timezone.utc)
    with convoke.testing.Server(start=start, seed=7) as server:
        assert server.now == start
        server.advance_to(start + timedelta(days=1))
        assert server.now == start + timedelta(days=1)
        with pytest.raises(ValueError, match="time zone"):
            server.advance_to(datetime(2031, 5, 8))
        assert asyncio.run(_enqueue(server)) == "pending"


async def _enqueue(server: convoke.testing.Server) -> str:
    client = server.async_client()
    handle = await client.enqueue("nobody", {})
    return (await handle.job()).status


def test_a_missing_program_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CONVOKE_BIN")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(convoke.ConvokeError, match="CONVOKE_BIN"):
        convoke.testing.Server()
    with pytest.raises(convoke.ConvokeError, match="did not start"):
        convoke.testing.Server(binary=sys.executable)


def test_the_app_returns_to_its_server(convoke_server: convoke.testing.Server) -> None:
    app = convoke.App("http://127.0.0.1:9")

    @app.job("quick")
    def quick() -> int:
        return 1

    with convoke_server.worker(app) as worker:
        assert quick.enqueue().result("20s") == 1
        assert worker.queues == ["default"]
    assert app.server == "http://127.0.0.1:9"
    assert convoke_server.client.jobs(type="quick").__next__().status == "completed"
