"""The options of a job, and the request that carries them with its arguments."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypedDict, TypeVar

from . import durations, limits, wire
from .durations import Duration
from .identifiers import job_id
from .schema import Decoder

R = TypeVar("R")

Priority = Literal["low", "normal", "high", "critical"]


class RetryPolicy(TypedDict, total=False):
    """The backoff between attempts."""

    initial_delay: Duration
    multiplier: float
    max_delay: Duration
    jitter: Literal["full", "none"]


class Options(TypedDict, total=False):
    """Options of a job. The server has a default for each; those of ``@app.job`` come before it."""

    queue: str
    priority: Priority
    delay: Duration
    run_at: datetime
    max_retries: int
    retry_policy: RetryPolicy
    timeout: Duration
    correlation_id: str
    unique_key: str
    unique_for: Duration
    tags: list[str]
    id: str


NAMES = frozenset(Options.__annotations__)

_DURATIONS = frozenset(("delay", "timeout", "unique_for", "initial_delay", "max_delay"))


def to_fields(options: dict[str, Any]) -> dict[str, Any]:
    """Returns the options as the fields of a request; raises ``TypeError`` for an unknown one."""
    fields = dict[str, Any]()
    for name, value in options.items():
        if name not in NAMES:
            raise TypeError(f"{name!r} is not an option of a job; expected one of {', '.join(sorted(NAMES))}")
        if value is not None:
            fields[_camel(name)] = _field(name, value)
    return fields


def _field(name: str, value: Any) -> Any:
    if name in _DURATIONS:
        return durations.text(value)
    if name == "run_at":
        if value.tzinfo is None:
            raise ValueError("run_at: expected a datetime with a time zone, got one without")
        return value.isoformat()
    if name == "retry_policy":
        return {_camel(key): _field(key, item) for key, item in value.items()}
    return value


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def _as_is(value: Any, path: str) -> Any:
    return value


@dataclass(frozen=True)
class Request(Generic[R]):
    """One job to enqueue. Made by ``job.request(…)``, for batches and transactions."""

    type: str
    args: str
    fields: dict[str, Any]
    decode_result: Decoder = field(default=_as_is, repr=False)

    @staticmethod
    def of(type: str, args: Any, options: dict[str, Any]) -> Request[Any]:
        return Request[Any](type, wire.encode(args, "args", limits.ARGS_BYTES_MAX), to_fields(options))

    def body(self) -> str:
        """Returns the job as ``POST /v1/jobs`` takes it. It has an id, so that sending the text twice makes one job."""
        fields = {"id": self.fields.get("id") or job_id(), "type": self.type, **self.fields}
        return f'{wire.encode(fields, "options", limits.ARGS_BYTES_MAX)[:-1]},"args":{self.args}}}'

    def template(self) -> str:
        """Returns the job as a schedule takes it: without an id and a time of its own."""
        wrong = {"id", "delay", "runAt"} & self.fields.keys()
        if wrong:
            raise TypeError(f"a schedule decides the time of its jobs: {', '.join(sorted(wrong))} cannot be set")
        fields = {"type": self.type, **self.fields}
        return f'{wire.encode(fields, "options", limits.ARGS_BYTES_MAX)[:-1]},"args":{self.args}}}'
