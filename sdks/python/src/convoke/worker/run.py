"""One run in this worker's hands."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from .. import durations


class Run:
    """A run. Its marks are changed under the lock of the table; handlers read ``stopped`` without it."""

    __slots__ = (
        "args",
        "attempt",
        "correlation_id",
        "deadline_at",
        "execution_id",
        "has_begun",
        "head",
        "interrupt",
        "is_over",
        "is_start_reported",
        "job_id",
        "lines",
        "max_retries",
        "queue",
        "started_at",
        "started_s",
        "stopped",
        "tags",
        "timeout_s",
        "type",
    )

    def __init__(self, assignment: dict[str, Any]) -> None:
        self.job_id: str = assignment["jobId"]
        self.execution_id: str = assignment["executionId"]
        self.type: str = assignment["type"]
        self.queue: str = assignment["queue"]
        self.args: Any = assignment["args"]
        self.attempt: int = assignment["attempt"]
        self.max_retries: int = assignment["maxRetries"]
        timeout: str | None = assignment.get("timeout")
        self.timeout_s = durations.seconds(timeout) if timeout else None
        self.correlation_id: str | None = assignment.get("correlationId")
        self.tags: tuple[str, ...] = tuple(assignment.get("tags") or ())
        #: The beginning of each of its events.
        self.head = f'{{"jobId":"{self.job_id}","executionId":"{self.execution_id}",'
        self.started_at: datetime | None = None
        self.started_s = 0.0
        self.deadline_at: datetime | None = None
        self.is_start_reported = False
        #: The number of its last log line.
        self.lines = 0
        #: The handler should stop.
        self.stopped = False
        #: Its end is on its way to the server, or will never be.
        self.is_over = False
        #: The task of the handler has made its first step. It and `interrupt` are for coroutines only.
        self.has_begun = False
        self.interrupt: Callable[[], None] | None = None

    def start(self) -> None:
        self.started_s = time.monotonic()
        self.started_at = now()
        if self.timeout_s is not None:
            self.deadline_at = self.started_at + timedelta(seconds=self.timeout_s)

    def event(self, kind: str, fields: str = "", at: datetime | None = None) -> str:
        """Returns the JSON text of an event. ``fields`` is the text of further fields, each after a comma."""
        return f'{self.head}"kind":"{kind}","at":"{(at or now()).isoformat()}"{fields}}}'

    def failed(self, error: str, retry: bool = True) -> str:
        return self.event("failed", f',"error":{json.dumps(error)},"retry":{"true" if retry else "false"}')


def now() -> datetime:
    return datetime.now(timezone.utc)
