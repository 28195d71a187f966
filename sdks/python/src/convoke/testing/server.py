"""The test server: the real coordinator in memory, whose time stands still until the test moves it."""

from __future__ import annotations

import atexit
import os
import shutil
import subprocess
import threading
import time
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Any

from .. import durations, wire
from ..app import App
from ..async_client import AsyncClient
from ..client import Client
from ..connection import Call, Connection
from ..durations import Duration
from ..errors import ConvokeError
from ..schema import instant
from ..servers import Servers
from ..worker import Worker

_START_LIMIT_S = 10.0
_STOP_LIMIT_S = 5.0
#: How long, in real time, the server waits for runs if the caller does not set it.
_PATIENCE_S = 10.0


@dataclass(frozen=True)
class Moved:
    """Where the clock is now, and how many runs have not ended within the time that they are waited for."""

    now: datetime
    running: int


class Server:
    """Starts ``convoke test-server``, and ends it with ``close`` or the context.

    ``seed`` decides all its random numbers and ids: the same seed and the same requests have the same results. Its time
    begins at ``start``; the default is 2030-01-01T00:00:00Z. ``binary`` is the program; the default is ``CONVOKE_BIN``,
    then ``convoke`` of the PATH.
    """

    url: str
    client: Client
    _lock: threading.Lock
    _connection: Connection

    def __init__(self, *, seed: int = 0, start: datetime | None = None, binary: str | None = None) -> None:
        found = binary or os.environ.get("CONVOKE_BIN") or shutil.which("convoke")
        if not found:
            raise ConvokeError("the test server needs the program convoke: add it to PATH, or set CONVOKE_BIN")
        self._lines = deque[str](maxlen=50)
        self._has_url = threading.Event()
        self._url: str | None = None
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONVOKE_")}
        try:
            self._process = subprocess.Popen(
                [found, "test-server", "--seed", str(seed), *_start_flag(start)],
                env=inherited,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
                encoding="utf-8",
                errors="replace",
            )
        except OSError as error:
            raise ConvokeError(f"the test server did not start: {error}") from error
        atexit.register(self.close)
        for read in (self._read, self._read_errors):
            threading.Thread(target=read, name="convoke-test-server", daemon=True).start()
        if not self._has_url.wait(_START_LIMIT_S) or self._url is None:
            self.close()
            raise ConvokeError(f"the test server {found!r} did not start:\n" + "".join(self._lines))
        self.url = self._url
        self._connection = Connection(Servers(self.url, None))
        self._lock = threading.Lock()
        self.client = Client(self.url)

    def async_client(self) -> AsyncClient:
        """Returns a client for the running event loop."""
        return AsyncClient(self.url)

    # Time

    @property
    def now(self) -> datetime:
        """The time of the server."""
        return instant(self._call("GET", "clock")["now"])

    def advance(self, by: Duration, *, wait_for_runs: Duration | None = None) -> Moved:
        """Moves the clock. Every schedule, retry, timeout, lease and retention that is due fires, in order.

        Runs that start meanwhile are waited for, each for ``wait_for_runs`` in real time (10 s), before time goes on.
        """
        return self._move({"advance": durations.text(by)}, wait_for_runs)

    def advance_to(self, at: datetime, *, wait_for_runs: Duration | None = None) -> Moved:
        """Moves the clock to an instant."""
        if at.tzinfo is None:
            raise ValueError("at: expected a datetime with a time zone, got one without")
        return self._move({"to": at.isoformat()}, wait_for_runs)

    def _move(self, target: dict[str, Any], wait_for_runs: Duration | None) -> Moved:
        wait_s = _PATIENCE_S if wait_for_runs is None else durations.seconds(wait_for_runs)
        moved = self._call("POST", "clock", {**target, "waitForRuns": durations.text(wait_s)}, wait_s=3_600)
        return Moved(instant(moved["now"]), moved["running"])

    def run_until_idle(self, timeout: Duration = "10s") -> None:
        """Waits, in real time, until no run is due or under way; raises ``Rejected`` if that takes longer."""
        body = {"timeout": durations.text(timeout)}
        self._call("POST", "run-until-idle", body, wait_s=durations.seconds(timeout))

    # Faults

    def fail_reports(self, count: int) -> None:
        """Rejects the next reports of workers as if the store were away."""
        self._fault(failReports=count)

    def lose_replies(self, count: int) -> None:
        """Carries out the next reports of workers, and drops the responses."""
        self._fault(loseReplies=count)

    def drop_heartbeats(self, worker_id: str, count: int = 1) -> None:
        """Drops the next heartbeats of a worker."""
        self._fault(dropHeartbeats={"worker": worker_id, "count": count})

    def cut_off(self, worker_id: str) -> None:
        """Drops everything that a worker sends, until ``reconnect``."""
        self._fault(cutOff=worker_id)

    def reconnect(self, worker_id: str) -> None:
        self._fault(reconnect=worker_id)

    def kill_leader(self) -> None:
        """Ends the term of the leader without notice; another takes over."""
        self._fault(killLeader=True)

    def clear_faults(self) -> None:
        self._call("DELETE", "faults")

    def _fault(self, **fault: Any) -> None:
        self._call("POST", "faults", fault)

    # Apps and workers

    @contextmanager
    def connect(self, app: App) -> Generator[None, None, None]:
        """Connects an app to this server: its jobs are enqueued here, and its workers work here."""
        with app.connected(self.url):
            yield

    @contextmanager
    def worker(self, app: App, **options: Any) -> Generator[Worker, None, None]:
        """Connects an app and runs a worker of it in a thread. ``options`` are those of ``Worker``."""
        with self.connect(app):
            settings: dict[str, Any] = {"drain": "1s", "name": "test", **options}
            worker = Worker(app, **settings)
            errors = list[BaseException]()

            def run() -> None:
                try:
                    worker.run()
                except BaseException as error:
                    errors.append(error)

            thread = threading.Thread(target=run, name="convoke-test-worker", daemon=True)
            thread.start()
            self._wait_for_worker(worker.id, thread)
            try:
                yield worker
            finally:
                worker.stop()
                thread.join(_STOP_LIMIT_S)
                if errors:
                    raise errors[0]

    def _wait_for_worker(self, worker_id: str, thread: threading.Thread) -> None:
        """Waits until the worker is registered: time must not move before."""
        end_s = time.monotonic() + _START_LIMIT_S
        while thread.is_alive() and time.monotonic() < end_s:
            workers = self._send(Call("GET", "/v1/workers"))["workers"]
            if any(each["workerId"] == worker_id for each in workers):
                return
            time.sleep(0.005)

    # The process

    def close(self) -> None:
        """Ends the server."""
        atexit.unregister(self.close)
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()

    def __enter__(self) -> Server:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Server {self.url}>"

    def _read(self) -> None:
        """Reads what the server writes, so that it never waits for a reader. The line that is a URL is its address."""
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not self._has_url.is_set() and line.startswith("http"):
                self._url = line.strip()
                self._has_url.set()
        self._process.wait()
        self._has_url.set()

    def _read_errors(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._lines.append(line)

    def _call(self, method: str, name: str, body: dict[str, Any] | None = None, wait_s: float = 0.0) -> Any:
        data = None if body is None else wire.encode(body, "body", 1 << 16).encode()
        return self._send(Call(method, f"/v1/test/{name}", data, wait_s))

    def _send(self, call: Call) -> Any:
        with self._lock:
            return wire.decode(self._connection.send(call) or b"null")


def _start_flag(start: datetime | None) -> list[str]:
    if start is None:
        return []
    if start.tzinfo is None:
        raise ValueError("start: expected a datetime with a time zone, got one without")
    return ["--start", start.isoformat()]
