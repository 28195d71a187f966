"""Errors, by what the caller does next."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import durations

if TYPE_CHECKING:
    from .durations import Duration
    from .records import JobRecord


class ConvokeError(Exception):
    """Any error of this package."""


class Unavailable(ConvokeError):
    """No server responded, or none can serve the request now. The same request may succeed later."""


class Rejected(ConvokeError):
    """The server rejects the request. It must be corrected."""

    def __init__(self, status: int, code: str, message: str, field: str | None) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.status = status
        self.code = code
        self.field = field


class NotCompleted(ConvokeError):
    """The job ended, and not by completing."""

    def __init__(self, job: JobRecord) -> None:
        super().__init__(f"job {job.id} is {job.status}: {job.error or 'without an error'}")
        self.job = job


class StillRunning(ConvokeError, TimeoutError):
    """The job has not ended within the time that the caller waits."""


class InvalidArguments(ConvokeError, ValueError):
    """Arguments or a result do not fit the annotations, or cannot be written as JSON. ``field`` is the path."""

    def __init__(self, field: str, message: str) -> None:
        super().__init__(f"{field}: {message}" if field else message)
        self.field = field


class Permanent(Exception):
    """Raised by a handler: the job fails, and another attempt is not made."""


class Retry(Exception):
    """Raised by a handler: this attempt failed, and the next one starts no earlier than ``after`` from now.

    The worker keeps the run for this time without a slot and then reports the failure, so the job's own backoff comes
    on top. The time is shorter if the run's timeout ends before, or if the worker stops.
    """

    def __init__(self, message: str = "the handler asks for another attempt", *, after: Duration | None = None) -> None:
        super().__init__(message)
        self.after_s = None if after is None else durations.seconds(after)
