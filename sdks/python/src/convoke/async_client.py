"""The client for one event loop. Its methods are those of ``Client``, awaited."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, TypeVar, overload

from . import api
from .async_connection import AsyncConnection
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


class AsyncClient:
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
        self._idle = deque[AsyncConnection](maxlen=_IDLE_CONNECTIONS_MAX)

    @overload
    async def enqueue(self, job: Request[R], /) -> AsyncHandle[R]: ...

    @overload
    async def enqueue(self, job: str, args: Any = None, /, **options: Unpack[Options]) -> AsyncHandle[Any]: ...

    async def enqueue(self, job: Request[Any] | str, args: Any = None, /, **options: Any) -> AsyncHandle[Any]:
        """Enqueues one job. It is durable when this returns."""
        request = job if isinstance(job, Request) else Request.of(job, args, options)
        return (await self.enqueue_batch([request]))[0]

    async def enqueue_batch(self, jobs: Sequence[Request[R]]) -> list[AsyncHandle[R]]:
        """Enqueues up to 10,000 jobs, all or none, in order."""
        enqueued = await self._send(api.enqueue(jobs))
        return [AsyncHandle(self, each.id, each.created, job) for each, job in zip(enqueued, jobs, strict=True)]

    async def job(self, job_id: str) -> JobRecord:
        return await self._send(api.job(job_id))

    async def wait(self, job_id: str, timeout: Duration | None = None) -> JobRecord:
        """Returns the job once it has ended; raises ``StillRunning`` if ``timeout`` is over before."""
        end = None if timeout is None else time.monotonic() + seconds(timeout)
        while True:
            left = api.WAIT_MAX_S if end is None else max(0.0, end - time.monotonic())
            job = await self._send(api.job(job_id, min(left, api.WAIT_MAX_S)))
            if job.has_ended:
                return job
            if end is not None and time.monotonic() >= end:
                raise StillRunning(f"job {job_id} has not ended: it is {job.status}")

    async def cancel(self, job_id: str, reason: str | None = None) -> JobRecord:
        """Cancels the job, whether it waits or runs."""
        return await self._send(api.cancel(job_id, reason))

    async def retry(self, job_id: str) -> JobRecord:
        """Runs an ended job again, with a fresh budget of retries."""
        return await self._send(api.retry(job_id))

    async def jobs(
        self,
        *,
        queue: str | None = None,
        type: str | None = None,
        status: str | None = None,
        tag: str | None = None,
        correlation_id: str | None = None,
    ) -> AsyncIterator[JobRecord]:
        """Yields jobs, the newest first, page by page."""
        filters = {"queue": queue, "type": type, "status": status, "tag": tag, "correlationId": correlation_id}
        cursor: str | None = None
        while True:
            page, cursor = await self._send(api.jobs({**filters, "cursor": cursor}))
            for job in page:
                yield job
            if cursor is None:
                return

    async def logs(self, job_id: str, after: int = 0, limit: int = 1_000) -> list[LogLine]:
        """Returns a page of the job's log: lines with ``seq`` above ``after``."""
        return await self._send(api.logs(job_id, after, limit))

    async def put_schedule(self, name: str, timing: Cron | Every, job: Request[Any]) -> Schedule:
        """Creates or replaces a schedule."""
        return await self._send(api.put_schedule(name, timing, job))

    async def schedule(self, name: str) -> Schedule:
        return await self._send(api.schedule(name))

    async def schedules(self) -> list[Schedule]:
        return await self._send(api.schedules())

    async def remove_schedule(self, name: str) -> None:
        """Deletes a schedule. The jobs that it made stay."""
        await self._send(api.remove_schedule(name))

    async def pause_schedule(self, name: str) -> Schedule:
        return await self._send(api.pause_schedule(name))

    async def resume_schedule(self, name: str) -> Schedule:
        return await self._send(api.resume_schedule(name))

    async def trigger_schedule(self, name: str) -> JobRecord:
        """Makes a job now, beside the ticks."""
        return await self._send(api.trigger_schedule(name))

    async def _send(self, exchange: api.Exchange[T]) -> T:
        end, backoff = time.monotonic() + self._retry_for_s, Backoff(self._servers)
        while True:
            try:
                connection = self._idle.pop()
            except IndexError:
                connection = AsyncConnection(self._servers)
            try:
                data = await connection.send(exchange.call)
            except Unavailable:
                delay = backoff.next_delay()
                if time.monotonic() + delay > end:
                    raise
                await asyncio.sleep(delay)
                continue
            finally:
                self._keep(connection)
            return exchange.parse(data)

    def _keep(self, connection: AsyncConnection) -> None:
        if len(self._idle) < _IDLE_CONNECTIONS_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    def close(self) -> None:
        """Closes the connections that are kept open. A later request opens new ones."""
        while self._idle:
            self._idle.pop().close()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class AsyncHandle(Generic[R]):
    """An enqueued job. ``created`` is false if a job with the same unique key existed already."""

    def __init__(self, client: AsyncClient, job_id: str, created: bool, request: Request[R]) -> None:
        self._client = client
        self._request = request
        self.id = job_id
        self.created = created

    async def job(self) -> JobRecord:
        """Reads the job as it is now."""
        return await self._client.job(self.id)

    async def wait(self, timeout: Duration | None = None) -> JobRecord:
        """Waits through all attempts until the job has ended, with whatever outcome."""
        return await self._client.wait(self.id, timeout)

    async def result(self, timeout: Duration | None = None) -> R:
        """Waits for the job and returns its result; raises ``NotCompleted`` if it did not complete."""
        job = await self.wait(timeout)
        if job.status != "completed":
            raise NotCompleted(job)
        value: R = self._request.decode_result(job.result, "result")
        return value

    async def cancel(self, reason: str | None = None) -> JobRecord:
        return await self._client.cancel(self.id, reason)

    def __repr__(self) -> str:
        return f"<AsyncHandle {self.id}>"
