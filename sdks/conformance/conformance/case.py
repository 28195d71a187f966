"""What a case has: a server, adapters, and the steps that most cases share."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import Any

from .adapter import Adapter
from .cluster import Cluster
from .postgres import Postgres
from .server import Server

QUEUE = "conformance"

#: Cases by name, in the order of their definition.
CASES = dict[str, Callable[["Case"], None]]()


def case(function: Callable[[Case], None]) -> Callable[[Case], None]:
    """Makes a function a case. Its name is the case's, its docstring is what is checked."""
    CASES[function.__name__] = function
    return function


class Case:
    """``postgres``: a cluster of three nodes on it, instead of one node on SQLite."""

    def __init__(self, binary: str, command: Sequence[str], postgres: Postgres | None = None) -> None:
        self._command = command
        self._directory = tempfile.mkdtemp(prefix="convoke-conformance-")
        self._adapters = list[Adapter]()
        self.server: Server | Cluster = Server(binary, self._directory)
        if postgres is not None:
            database = f"case_{os.path.basename(self._directory).rpartition('-')[2].lower()}"
            self.server = Cluster(binary, self._directory, postgres.create(database))

    def __enter__(self) -> Case:
        self.server.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for adapter in self._adapters:
            adapter.kill()
        self.server.kill()
        if kind is None:
            shutil.rmtree(self._directory, ignore_errors=True)

    def errors(self) -> str:
        """Returns what the adapters and the server wrote for people, after a failure."""
        path, written = os.path.join(self._directory, "adapter.log"), ""
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as log:
                written = log.read()[-4_000:]
        text = f"--- adapter\n{written}\n--- server\n{self.server.log()}"
        shutil.rmtree(self._directory, ignore_errors=True)
        return text

    def adapter(self, servers: list[str] | None = None) -> Adapter:
        """Starts an adapter and connects it."""
        adapter = Adapter(self._command, os.path.join(self._directory, "adapter.log"))
        self._adapters.append(adapter)
        adapter.call("connect", servers=servers or self.server.urls, token=None)
        return adapter

    def worker(self, concurrency: int = 4, drain: str = "25s", servers: list[str] | None = None) -> Adapter:
        """Starts an adapter with a worker that has the handlers ``told`` and ``typed``."""
        adapter = self.adapter(servers)
        adapter.call("register", type="told", handler="told")
        adapter.call("register", type="typed", handler="typed")
        adapter.call("start", queues=[QUEUE], concurrency=concurrency, drain=drain)
        return adapter

    def enqueue(self, adapter: Adapter, args: Any = None, type: str = "told", **options: Any) -> str:
        """Enqueues a job through the client and returns its id."""
        made = adapter.call(
            "enqueue", type=type, args={} if args is None else args, options={"queue": QUEUE, **options}
        )
        return str(made["jobId"])

    def wait(self, adapter: Adapter, job_id: str, seconds: float = 20) -> dict[str, Any]:
        return adapter.call("wait", jobId=job_id, seconds=seconds)

    def until(self, is_so: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
        end_s = time.monotonic() + limit_s
        while not is_so():
            assert time.monotonic() < end_s, f"not so within {limit_s:g} s: {what}"
            time.sleep(0.02)


def expect(is_so: bool, what: str) -> None:
    assert is_so, what


def same(found: Any, expected: Any, what: str) -> None:
    assert found == expected, f"{what}: expected {shown(expected)}, got {shown(found)}"


def shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) < 200 else f"{text[:200]}… ({len(text)} characters)"
