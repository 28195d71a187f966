"""Jobs: functions that can be enqueued."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Generic, ParamSpec, TypeVar

from . import options as job_options
from .async_client import AsyncHandle
from .client import Handle
from .context import current_run
from .options import Request
from .records import Cron, Every, Schedule
from .signature import Signature

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from .app import App
    from .options import Options

P = ParamSpec("P")
R = TypeVar("R")


class Sender(Generic[P, R]):
    """Enqueues jobs of one type with certain options. The arguments are typed like those of the function.

    Type checkers know the arguments of the function alone, so options go through ``options``:
    ``email.options(delay="5m").enqueue(to="a@b.c")``. At run time ``email.enqueue(to="a@b.c", delay="5m")`` is the
    same, unless the function has a parameter of this name.
    """

    def __init__(self, app: App, type: str, signature: Signature, options: dict[str, Any]) -> None:
        self._app = app
        self._signature = signature
        self._options = options
        self.type = type

    def options(self, **options: Unpack[Options]) -> Sender[P, R]:
        """Returns a sender with further options; those given here win."""
        job_options.to_fields(dict[str, Any](options))
        return Sender(self._app, self.type, self._signature, {**self._options, **options})

    def request(self, *args: P.args, **kwargs: P.kwargs) -> Request[R]:
        """Returns the job without sending it: for ``enqueue_batch`` and for transactions."""
        own, options = dict[str, Any](), dict(self._options)
        for name, value in kwargs.items():
            is_option = name in job_options.NAMES and name not in self._signature.names
            (options if is_option else own)[name] = value
        text = self._signature.encode(args, own)
        return Request(self.type, text, job_options.to_fields(options), self._signature.decode_result)

    def enqueue(self, *args: P.args, **kwargs: P.kwargs) -> Handle[R]:
        """Enqueues the job. It is durable when this returns."""
        return self._app.client.enqueue(self.request(*args, **kwargs))

    async def enqueue_async(self, *args: P.args, **kwargs: P.kwargs) -> AsyncHandle[R]:
        """The same for an event loop."""
        return await self._app.async_client.enqueue(self.request(*args, **kwargs))

    def schedule(self, name: str, timing: Cron | Every, /, *args: P.args, **kwargs: P.kwargs) -> Schedule:
        """Creates or replaces the schedule of this name, whose ticks make jobs with these arguments."""
        return self._app.client.put_schedule(name, timing, self.request(*args, **kwargs))


class Job(Sender[P, R]):
    """A function that runs as a job. Calling it calls the function."""

    is_async = False

    def __init__(self, app: App, type: str, function: Callable[..., Any], options: dict[str, Any]) -> None:
        super().__init__(app, type, Signature(function), options)
        self.function = function
        self.queue: str = options.get("queue") or "default"
        self.__name__ = function.__name__
        self.__doc__ = function.__doc__

    @property
    def signature(self) -> Signature:
        return self._signature

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        if self._signature.takes_context:
            return self.function(current_run(), *args, **kwargs)  # type: ignore[no-any-return]
        return self.function(*args, **kwargs)  # type: ignore[no-any-return]

    def __repr__(self) -> str:
        return f"<Job {self.type} queue={self.queue}>"


class AsyncJob(Job[P, R]):
    """A coroutine function that runs as a job. Awaiting its call awaits the function."""

    is_async = True

    async def __call__(  # type: ignore[override] # pyright: ignore[reportIncompatibleMethodOverride]
        self, *args: P.args, **kwargs: P.kwargs
    ) -> R:
        if self._signature.takes_context:
            return await self.function(current_run(), *args, **kwargs)  # type: ignore[no-any-return]
        return await self.function(*args, **kwargs)  # type: ignore[no-any-return]
