"""The application: its jobs, and where they are sent."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar, overload

from . import limits
from . import options as job_options
from .async_client import AsyncClient
from .client import Client, Handle
from .context import Context
from .jobs import AsyncJob, Job
from .options import Request

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .options import Options

P = ParamSpec("P")
R = TypeVar("R")


class App:
    """Jobs by their type. ``server`` and ``token`` are those of ``Client``; nothing is sent until a job is enqueued."""

    def __init__(self, server: str | Sequence[str] | None = None, *, token: str | None = None) -> None:
        self.server = server
        self.token = token
        self.jobs = dict[str, Job[..., Any]]()
        self._lock = threading.Lock()
        self._client: Client | None = None
        self._make_client: Callable[[], Client] = lambda: Client(self.server, token=self.token)
        self._make_async_client: Callable[[], AsyncClient] = lambda: AsyncClient(self.server, token=self.token)
        # Connections belong to their event loop.
        self._async_clients = dict[asyncio.AbstractEventLoop, AsyncClient]()

    @property
    def client(self) -> Client:
        with self._lock:
            if self._client is None:
                self._client = self._make_client()
            return self._client

    @property
    def async_client(self) -> AsyncClient:
        """The client of the running event loop."""
        loop = asyncio.get_running_loop()
        with self._lock:
            if loop not in self._async_clients:
                open_loops = {each: client for each, client in self._async_clients.items() if not each.is_closed()}
                self._async_clients = {**open_loops, loop: self._make_async_client()}
            return self._async_clients[loop]

    @contextmanager
    def connected(
        self,
        server: str | Sequence[str] | None,
        client: Callable[[], Client] | None = None,
        async_client: Callable[[], AsyncClient] | None = None,
    ) -> Generator[None, None, None]:
        """Connects the app to another server, or to clients of another kind, for as long as the context lasts."""
        names = ("server", "_client", "_async_clients", "_make_client", "_make_async_client")
        with self._lock:
            before = {name: getattr(self, name) for name in names}
            self.server, self._client, self._async_clients = server, None, {}
            self._make_client = client or self._make_client
            self._make_async_client = async_client or self._make_async_client
        try:
            yield
        finally:
            with self._lock:
                used = self._client
                vars(self).update(before)
            if used is not None:
                used.close()

    def enqueue_batch(self, jobs: Sequence[Request[R]]) -> list[Handle[R]]:
        """Enqueues up to 10,000 jobs, all or none: ``app.enqueue_batch([email.request(to=each) for each in all])``."""
        return self.client.enqueue_batch(jobs)

    def job(self, type: str | None = None, /, **options: Unpack[Options]) -> JobDecorator:
        """Makes a function a job: ``@app.job("email.send", queue="mail", max_retries=5, timeout="30s")``.

        The type is the name of the function if it is left out. The options are the defaults of every enqueue.
        """
        job_options.to_fields(dict[str, Any](options))
        if type is not None and not 1 <= len(type.encode()) <= limits.NAME_BYTES_MAX:
            raise ValueError(f"type: expected 1 to {limits.NAME_BYTES_MAX} bytes, got {type!r}")
        return JobDecorator(self, type, dict[str, Any](options))


class JobDecorator:
    """What ``app.job(…)`` returns. A first parameter of the type ``Context`` is not an argument of the job."""

    def __init__(self, app: App, type: str | None, options: dict[str, Any]) -> None:
        self._app, self._type, self._options = app, type, options

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], Coroutine[Any, Any, R]]) -> AsyncJob[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, Coroutine[Any, Any, R]]) -> AsyncJob[P, R]: ...

    @overload
    def __call__(self, function: Callable[Concatenate[Context, P], R]) -> Job[P, R]: ...

    @overload
    def __call__(self, function: Callable[P, R]) -> Job[P, R]: ...

    def __call__(self, function: Callable[..., Any]) -> Job[..., Any]:
        kind = AsyncJob[..., Any] if inspect.iscoroutinefunction(function) else Job[..., Any]
        job = kind(self._app, self._type or function.__name__, function, self._options)
        if job.type in self._app.jobs:
            raise ValueError(f"two jobs of the type {job.type!r} are defined; a type has one handler")
        self._app.jobs[job.type] = job
        return job
