"""Shard workers against the real coordinator, and their rules without one."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import convoke
from conformance.server import Server, free_port
from conftest import binary
from convoke.shards.rules import Rules

SERVICE = "prices"
TIMES = {"CONVOKE_SHARDS__HEARTBEAT_TIMEOUT": "1500ms", "CONVOKE_SHARDS__CHECK_INTERVAL": "100ms"}


class Coordinator(Server):
    """A server whose shard coordinator has an address that stays."""

    def __init__(self, directory: str) -> None:
        self.address = f"tcp://127.0.0.1:{free_port()}"
        super().__init__(binary(), directory, settings=TIMES, shards=self.address)

    def worker(self, worker_id: str, **options: Any) -> convoke.ShardWorker:
        return convoke.ShardWorker(self.address, SERVICE, worker_id, 10, **options)


@pytest.fixture
def coordinator(tmp_path: Path) -> Iterator[Coordinator]:
    server = Coordinator(str(tmp_path))
    server.start()
    yield server
    server.kill()


class Follower:
    """Reads the changes of a worker in a thread. With ``gate`` it is slow to stop: the gate must be opened."""

    def __init__(self, worker: convoke.ShardWorker, gate: threading.Event | None = None) -> None:
        self.worker, self.held = worker, set[int]()
        self.changes = list[convoke.ShardChange]()
        self.removing = threading.Event()
        self._gate = gate
        self._thread = threading.Thread(target=self._follow, daemon=True)
        self._thread.start()

    def _follow(self) -> None:
        for change in self.worker.changes():
            if change.removed and self._gate is not None:
                self.removing.set()
                self._gate.wait(20)
            self.held = set(change.shards)
            self.changes.append(change)

    def join(self) -> None:
        self._thread.join(20)
        assert not self._thread.is_alive(), "the changes did not end"


def until(is_so: Callable[[], bool], limit_s: float = 20) -> None:
    end_s = time.monotonic() + limit_s
    while not is_so():
        assert time.monotonic() < end_s, "not so in time"
        time.sleep(0.01)


def test_shards_are_distributed_and_move_when_a_worker_leaves(coordinator: Coordinator) -> None:
    a, b = coordinator.worker("a"), coordinator.worker("b")
    try:
        until(lambda: len(a.shards) == 5 and len(b.shards) == 5)
        assert sorted(a.shards + b.shards) == list(range(10))
        assert a.owns(a.shards[0]) and not b.owns(a.shards[0])
        before = b.version
        assert a.leave()
        until(lambda: len(b.shards) == 10)
        assert b.version > before
        assert a.shards == () and not a.owns(0)
    finally:
        assert b.leave()


def test_a_shard_moves_only_after_its_worker_has_stopped(coordinator: Coordinator) -> None:
    gate = threading.Event()
    a = Follower(coordinator.worker("a", handoff=True), gate)
    until(lambda: len(a.held) == 10)
    b = Follower(coordinator.worker("b", handoff=True))
    assert a.removing.wait(20)
    # Several heartbeats long: the coordinator waits for the confirmation.
    time.sleep(2.0)
    assert b.held == set() and b.worker.is_connected
    assert len(a.held) == 10
    assert len(a.worker.shards) == 5, "it must not begin new work on what it releases"
    gate.set()
    until(lambda: len(b.held) == 5 and len(a.held) == 5)
    assert not a.held & b.held
    assert b.changes[0].version > a.changes[0].version
    assert b.worker.leave() and a.worker.leave()
    a.join()
    b.join()
    assert a.held == b.held == set(), "the last change removes all"


def test_a_worker_that_is_cut_off_has_no_shards(coordinator: Coordinator) -> None:
    a = Follower(coordinator.worker("a", handoff=True))
    until(lambda: len(a.held) == 10)
    coordinator.kill()
    until(lambda: a.held == set())
    assert a.worker.shards == () and not a.worker.is_connected
    coordinator.start()
    until(lambda: len(a.held) == 10)
    assert a.worker.leave()


def test_the_second_worker_of_an_id_replaces_the_first(coordinator: Coordinator) -> None:
    first = Follower(coordinator.worker("a"))
    until(lambda: len(first.held) == 10)
    second = coordinator.worker("a")
    until(lambda: len(second.shards) == 10)
    first.join()
    assert first.worker.is_replaced and first.held == set()
    assert second.leave()


def test_the_first_address_that_leads_is_used(coordinator: Coordinator) -> None:
    dead = f"tcp://127.0.0.1:{free_port()}"
    with convoke.ShardWorker([dead, coordinator.address], SERVICE, "a", 10, heartbeat_interval="100ms") as worker:
        until(lambda: len(worker.shards) == 10)


def test_changes_in_an_event_loop(coordinator: Coordinator) -> None:
    async def follow() -> list[convoke.ShardChange]:
        worker, seen = coordinator.worker("a", handoff=True), list[convoke.ShardChange]()
        leaving: asyncio.Task[bool] | None = None
        async for change in worker.changes_async():
            seen.append(change)
            leaving = leaving or asyncio.create_task(worker.leave_async())
        assert leaving is not None and await leaving
        return seen

    changes = asyncio.run(asyncio.wait_for(follow(), 20))
    assert [(change.added, change.removed) for change in changes] == [
        (tuple(range(10)), ()),
        ((), tuple(range(10))),
    ]


def test_wrong_settings_are_rejected() -> None:
    for address, service, count in (("http://a", "s", 1), ("tcp://a:1", "", 1), ("tcp://a:1", "s", -1)):
        with pytest.raises(ValueError, match="expected"):
            convoke.ShardWorker(address, service, "a", count)


# The rules alone


def rules(handoff: bool = True) -> Rules:
    return Rules(SERVICE, "a", 10, handoff, None, 100, 0.0)


def said(worker: Rules) -> list[tuple[str, dict[str, Any]]]:
    messages, worker.outgoing = worker.outgoing, []
    return [(message["type"], message["data"]) for message in messages]


def receive(worker: Rules, kind: str, now_s: float, **data: Any) -> None:
    worker.receive(json.dumps({"type": kind, "data": data}).encode(), now_s)


def assign(worker: Rules, shards: list[int], version: int, now_s: float, beat: int | None = None) -> None:
    extra = {} if beat is None else {"beat": beat}
    receive(worker, "assignment", now_s, assignedShards=shards, version=version, heartbeatTimeout="15s", **extra)


def test_only_a_reply_gives_certainty_and_it_ends_a_tenth_early() -> None:
    worker = rules()
    worker.tick(0.0)
    assert [kind for kind, _ in said(worker)] == ["register"]
    assign(worker, [1, 2], 7, 1.0)
    assert worker.shards(1.0) == set(), "it was not requested"
    assign(worker, [1, 2], 7, 1.0, beat=100)
    assert worker.shards(13.4) == {1, 2}
    assert worker.shards(13.6) == set(), "counted from when the heartbeat was sent"


def test_a_revoked_shard_is_reported_until_the_change_is_acknowledged() -> None:
    worker = rules()
    worker.tick(0.0)
    assign(worker, [1, 2], 7, 0.0, beat=100)
    assert (change := worker.change(0.0)) and change.added == (1, 2)
    worker.acknowledge()
    said(worker)
    receive(worker, "revoke", 1.0, shards=[2, 9], version=8)
    assert said(worker) == [("released", {"serviceName": SERVICE, "workerId": "a", "shards": [9], "version": 8})]
    assert (change := worker.change(1.0)) and change.removed == (2,)
    worker.tick(6.0)
    assert said(worker)[0][1]["assignedShards"] == [1, 2]
    worker.acknowledge()
    assert said(worker)[0][1]["shards"] == [2]
    worker.tick(12.0)
    assert said(worker)[0][1]["assignedShards"] == [1]


def test_a_lower_version_is_ignored_until_nothing_is_held_for_a_timeout() -> None:
    worker = rules()
    worker.tick(0.0)
    assign(worker, [1], 7, 0.0, beat=100)
    worker.change(0.0)
    worker.acknowledge()
    assign(worker, [1, 2], 6, 1.0)
    assert worker.shards(1.0) == {1}
    # Fenced, and acknowledged.
    assert (change := worker.change(14.0)) and change.removed == (1,)
    worker.acknowledge()
    assign(worker, [3], 6, 14.0)
    assert worker.version == 7
    assign(worker, [3], 6, 15.0)
    assert worker.version == 6


def test_a_replaced_worker_sends_nothing_more() -> None:
    worker = rules()
    worker.tick(0.0)
    assign(worker, [1], 7, 0.0, beat=100)
    worker.change(0.0)
    worker.acknowledge()
    said(worker)
    receive(worker, "error", 1.0, code="replaced", message="another process registered under this id")
    assert (change := worker.change(1.0)) and change.removed == (1,)
    worker.tick(9.0)
    assert not worker.is_gone
    worker.acknowledge()
    worker.tick(10.0)
    assert worker.is_gone and worker.is_replaced and said(worker) == []


def test_messages_that_cannot_be_read_change_nothing() -> None:
    worker = rules()
    for frame in (b"[]", b'{"type":"other"}', b'{"type":"assignment","data":null,"x":1}'):
        try:
            worker.receive(frame, 0.0)
        except (ValueError, LookupError, TypeError):
            pass
    assert worker.version == 0 and worker.shards(0.0) == set()
