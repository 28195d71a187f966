"""The run that a handler executes: what it knows of it, and what it reports."""

from __future__ import annotations

import logging
from contextvars import ContextVar
from datetime import datetime
from typing import TYPE_CHECKING, Literal, Protocol

from . import limits
from .errors import ConvokeError

if TYPE_CHECKING:
    from .worker.run import Run

#: The levels of a job's log.
Level = Literal["trace", "debug", "info", "warn", "error"]

_current: ContextVar[Context] = ContextVar("convoke_run")


class Reports(Protocol):
    """Where a run sends what its handler reports."""

    def log(self, run: Run, message: str, level: str) -> None: ...

    def progress(self, run: Run, percent: int, message: str | None) -> None: ...


class Context:
    """A run, for its handler. Threads and tasks that the handler starts may use it too."""

    __slots__ = ("_run", "_table")

    def __init__(self, run: Run, table: Reports) -> None:
        self._run = run
        self._table = table

    @property
    def job_id(self) -> str:
        """The id of the job, the same for all its attempts: the key that makes a handler idempotent."""
        return self._run.job_id

    @property
    def execution_id(self) -> str:
        """The id of this run, new for every attempt: use it to fence your own writes."""
        return self._run.execution_id

    @property
    def type(self) -> str:
        return self._run.type

    @property
    def queue(self) -> str:
        return self._run.queue

    @property
    def attempt(self) -> int:
        """The number of this attempt; 1 for the first."""
        return self._run.attempt

    @property
    def max_retries(self) -> int:
        """How many attempts may follow the first."""
        return self._run.max_retries

    @property
    def correlation_id(self) -> str | None:
        return self._run.correlation_id

    @property
    def tags(self) -> tuple[str, ...]:
        return self._run.tags

    @property
    def deadline(self) -> datetime | None:
        """When the run's time is up; ``None`` if the job has no timeout."""
        return self._run.deadline_at

    @property
    def cancelled(self) -> bool:
        """Whether the handler should stop: job cancelled, time up, lease lost, or the worker ends."""
        return self._run.stopped

    def log(self, message: str, level: Level = "info") -> None:
        """Adds a line to the job's log. Never blocks: beyond 10,000 unsent lines it is dropped, and counted."""
        self._table.log(self._run, limits.cut(str(message), limits.LOG_LINE_BYTES_MAX), level)

    def progress(self, percent: int, message: str | None = None) -> None:
        """Reports how far the run is; the last report counts."""
        text = limits.cut(message, limits.PROGRESS_MESSAGE_BYTES_MAX) if message else None
        self._table.progress(self._run, max(0, min(100, int(percent))), text)

    def __repr__(self) -> str:
        return f"<Context job={self.job_id} run={self.execution_id} attempt={self.attempt}>"


def current_run() -> Context:
    """Returns the run that this thread or task executes; raises ``ConvokeError`` outside of one."""
    context = _current.get(None)
    if context is None:
        raise ConvokeError("current_run() was called outside of a handler")
    return context


def set_current_run(context: Context) -> None:
    _current.set(context)


class LogHandler(logging.Handler):
    """Copies records of the ``logging`` module into the log of the job that wrote them.

    ``logging.getLogger().addHandler(convoke.LogHandler())``; the command ``python -m convoke worker`` does so.
    """

    def emit(self, record: logging.LogRecord) -> None:
        context = _current.get(None)
        # The worker's own records are about the worker, and some are about this log.
        if context is None or record.name.partition(".")[0] == "convoke":
            return
        try:
            context.log(self.format(record), _level(record.levelno))
        except Exception:
            self.handleError(record)


def _level(number: int) -> Level:
    if number >= logging.ERROR:
        return "error"
    if number >= logging.WARNING:
        return "warn"
    return "info" if number >= logging.INFO else "debug"
