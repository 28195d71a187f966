"""The client for threads. Safe to share: each request uses a connection of its own."""

from __future__ import annotations

import os
import time
from collections import deque
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import api
from .connection import Connection
from .durations import Duration, seconds
from .errors import NotCompleted, StillRunning, Unavailable
from .options import Request
from .records import Cron, Every, JobRecord, LogLine, Schedule
from .servers import Backoff, Servers

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import Options

R = TypeVar("R")
T = TypeVar("T")

_IDLE_CONNECTIONS_MAX = 16


class Client:
    """Enqueues jobs and reads them.

    ``server`` is one URL or several nodes of one cluster; ``CONVOKE_SERVER`` and ``CONVOKE_TOKEN`` are the defaults.
    A request is repeated for ``retry_for`` while no server responds; after that ``Unavailable`` is raised.
    """

    def __init__(
        self,
        server: str | Sequence[str] | None = None,
        *,
        token: str | None = None,
        retry_for: Duration = "10s",
    ) -> None:
        self._servers = Servers(server, token)
        self._retry_for_s = seconds(retry_for)
        self._idle = deque[Connection](maxlen=_IDLE_CONNECTIONS_MAX)
        self._pid = os.getpid()

    @overload
    def enqueue(self, job: Request[R], /) -> Handle[R]: ...

    @overload
    def enqueue(self, job: str, args: Any = None, /, **options: Unpack[Options]) -> Handle[Any]: ...

    def enqueue(self, job: Request[Any] | str, args: Any = None, /, **options: Any) -> Handle[Any]:
        """Enqueues one job. It is durable when this returns."""
        request = job if isinstance(job, Request) else Request.of(job, args, options)
        return self.enqueue_batch([request])[0]

    def enqueue_batch(self, jobs: Sequence[Request[R]]) -> list[Handle[R]]:
        """Enqueues up to 10,000 jobs, all or none, in order."""
        enqueued = self._send(api.enqueue(jobs))
        return [Handle(self, each.id, each.created, job) for each, job in zip(enqueued, jobs, strict=True)]

    def job(self, job_id: str) -> JobRecord:
        return self._send(api.job(job_id))

    def wait(self, job_id: str, timeout: Duration | None = None) -> JobRecord:
        """Returns the job once it has ended; raises ``StillRunning`` if ``timeout`` is over before."""
        end = None if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            left = api.WAIT_MAX_S if end is None else max(0.0, end - time.monotonic())
            job = self._send(api.job(job_id, min(left, api.WAIT_MAX_S)))
            if job.has_ended:
                return job
            if end is not None and time.monotonic() >= end:
                raise StillRunning(f"job {job_id} has not ended: it is {job.status}")

    def cancel(self, job_id: str, reason: str | None = None) -> JobRecord:
        """Cancels the job, whether it waits or runs."""
        return self._send(api.cancel(job_id, reason))

    def retry(self, job_id: str) -> JobRecord:
        """Runs an ended job again, with a fresh budget of retries."""
        return self._send(api.retry(job_id))

    def jobs(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        status: str | None = None,
        tag: str | None = None,
        correlation_id: str | None = None,
    ) -> Iterator[JobRecord]:
        """Yields jobs, the newest first, page by page."""
        filters = {"queue": queue, "type": type, "status": status, "tag": tag, "correlationId": correlation_id}
        cursor: str | None = None
        while True:
            page, cursor = self._send(api.jobs({**filters, "cursor": cursor}))
            yield from page
            if cursor is None:
                return

    def logs(self, job_id: str, after: int = 0, limit: int = 1_000) -> list[LogLine]:
        """Returns a page of the job's log: lines with ``seq`` above ``after``."""
        return self._send(api.logs(job_id, after, limit))

    def put_schedule(self, name: str, timing: Cron | Every, job: Request[Any]) -> Schedule:
        """Creates or replaces a schedule."""
        return self._send(api.put_schedule(name, timing, job))

    def schedule(self, name: str) -> Schedule:
        return self._send(api.schedule(name))

    def schedules(self) -> list[Schedule]:
        return self._send(api.schedules())

    def remove_schedule(self, name: str) -> None:
        """Deletes a schedule. The jobs that it made stay."""
        self._send(api.remove_schedule(name))

    def pause_schedule(self, name: str) -> Schedule:
        return self._send(api.pause_schedule(name))

    def resume_schedule(self, name: str) -> Schedule:
        return self._send(api.resume_schedule(name))

    def trigger_schedule(self, name: str) -> JobRecord:
        """Makes a job now, beside the ticks."""
        return self._send(api.trigger_schedule(name))

    def _send(self, exchange: api.Exchange[T]) -> T:
        end, backoff = time.monotonic() + self._retry_for_s, Backoff(self._servers)
        if self._pid != os.getpid():
            # This is a fork: two processes must not use one connection.
            self._idle, self._pid = deque[Connection](maxlen=_IDLE_CONNECTIONS_MAX), os.getpid()
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = Connection(self._servers)
            try:
                data = connection.send(exchange.call)
            except Unavailable:
                delay = backoff.next_delay()
                if time.monotonic() + delay > end:
                    raise
                time.sleep(delay)
                continue
            finally:
                self._keep(connection)
            return exchange.parse(data)

    def _keep(self, connection: Connection) -> None:
        if len(self._idle) < _IDLE_CONNECTIONS_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the connections that are kept open. A later request opens new ones."""
        while self._idle:
            self._idle.pop().close()

    def __enter__(self) -> Client:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Handle(Generic[R]):
    """An enqueued job. ``created`` is false if a job with the same unique key existed already."""

    def __init__(self, client: Client, job_id: str, created: bool, request: Request[R]) -> None:
        self._client = client
        self._request = request
        self.id = job_id
        self.created = created

    def job(self) -> JobRecord:
        """Reads the job as it is now."""
        return self._client.job(self.id)

    def wait(self, timeout: Duration | None = None) -> JobRecord:
        """Waits through all attempts until the job has ended, with whatever outcome."""
        return self._client.wait(self.id, timeout)

    def result(self, timeout: Duration | None = None) -> R:
        """Waits for the job and returns its result; raises ``NotCompleted`` if it did not complete."""
        job = self.wait(timeout)
        if job.status != "completed":
            raise NotCompleted(job)
        value: R = self._request.decode_result(job.result, "result")
        return value

    def cancel(self, reason: str | None = None) -> JobRecord:
        return self._client.cancel(self.id, reason)

    def __repr__(self) -> str:
        return f"<Handle {self.id}>"
