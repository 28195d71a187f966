"""Inline mode: a job runs where it is enqueued, in the test's own process, before ``enqueue`` returns. No server runs.

The arguments go through JSON and are checked as a worker does. A failed attempt is repeated at once, as often as the
job may be retried; a delay is not waited for. Unique keys, schedules, timeouts and limits need a real server: use
``convoke.testing.Server`` for them.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Coroutine, Generator
from contextlib import contextmanager
from typing import Any, TypeVar
from urllib.parse import unquote

from .. import wire
from ..api import Exchange
from ..app import App
from ..async_client import AsyncClient
from ..client import Client
from ..connection import Call
from ..context import Reports
from ..errors import ConvokeError, Rejected
from ..identifiers import job_id
from ..jobs import Job
from ..worker.call import Ended, call_coroutine, call_function
from ..worker.run import Run, now

T = TypeVar("T")

#: What the server sets for a job that sets none.
_MAX_RETRIES = 3


@contextmanager
def inline(app: App) -> Generator[None, None, None]:
    """Runs the app's jobs where they are enqueued, as long as the context lasts."""
    runner = _Runner(app)
    with app.connected(app.server, lambda: _Client(runner), lambda: _AsyncClient(runner)):
        yield


class _Client(Client):
    def __init__(self, runner: _Runner) -> None:
        super().__init__()
        self._runner = runner

    def _send(self, exchange: Exchange[T]) -> T:
        for attempts in self._runner.attempts(exchange.call):
            _drive(attempts, self._runner)
        return exchange.parse(self._runner.response(exchange.call))


class _AsyncClient(AsyncClient):
    def __init__(self, runner: _Runner) -> None:
        super().__init__()
        self._runner = runner

    async def _send(self, exchange: Exchange[T]) -> T:
        for attempts in self._runner.attempts(exchange.call):
            await _drive_async(attempts, self._runner)
        return exchange.parse(self._runner.response(exchange.call))


#: Yields each attempt of a job, and receives how it ended.
_Attempts = Generator["tuple[Job[..., Any] | None, Run]", Ended, None]


class _Runner:
    """The jobs that ran, as a server would show them. It receives the log and the progress of their runs."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._jobs = dict[str, dict[str, Any]]()
        self._logs = dict[str, list[dict[str, Any]]]()

    def attempts(self, call: Call) -> list[_Attempts]:
        if (call.method, call.path) != ("POST", "/v1/jobs/batch"):
            return []
        return [self._attempts(spec) for spec in wire.decode(call.body or b"")["jobs"]]

    def _attempts(self, spec: dict[str, Any]) -> _Attempts:
        job = self._jobs[spec["id"]] = {
            "queue": "default",
            "maxRetries": _MAX_RETRIES,
            "args": None,
            **spec,
            "attempt": 0,
            "createdAt": now().isoformat(),
        }
        self._logs[spec["id"]] = []
        for attempt in range(1, job["maxRetries"] + 2):
            run = Run({**job, "jobId": job["id"], "executionId": job_id(), "attempt": attempt, "timeout": None})
            run.start()
            started_at = job.get("startedAt") or now().isoformat()
            job.update(status="running", attempt=attempt, startedAt=started_at)
            end, _ = yield self._app.jobs.get(job["type"]), run
            event = wire.decode(end)
            job.update(completedAt=event["at"], result=event.get("result"), error=event.get("error"))
            job["status"] = event["kind"]
            if event["kind"] == "completed" or not event["retry"]:
                return

    def log(self, run: Run, message: str, level: str) -> None:
        lines = self._logs[run.job_id]
        at = now().isoformat()
        lines.append({"seq": len(lines) + 1, "level": level, "message": message, "at": at, "attempt": run.attempt})

    def progress(self, run: Run, percent: int, message: str | None) -> None:
        self._jobs[run.job_id]["progress"] = {"percent": percent, "message": message}

    def response(self, call: Call) -> bytes:
        path, _, query = call.path.partition("?")
        parts = [unquote(part) for part in path.split("/")[2:]]
        if call.method == "POST" and parts == ["jobs", "batch"]:
            made = [{"id": spec["id"], "created": True} for spec in wire.decode(call.body or b"")["jobs"]]
            return _encode({"jobs": made})
        if call.method == "GET" and parts[0] == "jobs" and len(parts) > 1:
            if parts[1] not in self._jobs:
                raise Rejected(404, "not_found", f"there is no job {parts[1]}", None)
            if parts[2:] == ["logs"]:
                after = int(query.partition("after=")[2].partition("&")[0] or 0)
                return _encode({"logs": [line for line in self._logs[parts[1]] if line["seq"] > after]})
            return _encode(self._jobs[parts[1]])
        raise ConvokeError(f"inline mode has no {call.method} {path}: use convoke.testing.Server")


def _encode(value: Any) -> bytes:
    return wire.encode(value, "response", 1 << 30).encode()


def _drive(attempts: _Attempts, reports: Reports) -> None:
    try:
        job, run = next(attempts)
        while True:
            if job is not None and job.is_async:
                end = _run_to_end(call_coroutine(job, run, reports))
            else:
                end = contextvars.copy_context().run(call_function, job, run, reports)
            job, run = attempts.send(end)
    except StopIteration:
        pass


async def _drive_async(attempts: _Attempts, reports: Reports) -> None:
    try:
        job, run = next(attempts)
        while True:
            if job is not None and job.is_async:
                # A task of its own: what the handler sets must not be seen by the test.
                end = await asyncio.create_task(call_coroutine(job, run, reports))
            else:
                end = contextvars.copy_context().run(call_function, job, run, reports)
            job, run = attempts.send(end)
    except StopIteration:
        pass


def _run_to_end(coroutine: Coroutine[Any, Any, Ended]) -> Ended:
    """Runs a coroutine in an event loop of its own; in a thread of its own if this one has a running loop."""
    ended = list[Ended]()
    errors = list[BaseException]()

    def run() -> None:
        loop = asyncio.new_event_loop()
        try:
            ended.append(loop.run_until_complete(coroutine))
        except BaseException as error:
            errors.append(error)
        finally:
            loop.close()

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), name="convoke-inline")
    thread.start()
    thread.join()
    if errors:
        raise errors[0]
    return ended[0]
