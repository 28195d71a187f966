"""What the server returns: jobs, log lines, schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

from .durations import Duration, text
from .schema import instant

Status = Literal["scheduled", "pending", "dispatched", "running", "completed", "failed", "timedOut", "cancelled"]

_LIVE = frozenset(("scheduled", "pending", "dispatched", "running"))


@dataclass(frozen=True)
class Progress:
    percent: int
    message: str | None


@dataclass(frozen=True)
class JobRecord:
    """A job as the server shows it. ``raw`` has every field."""

    id: str
    type: str
    queue: str
    status: str
    attempt: int
    max_retries: int
    args: Any
    result: Any
    error: str | None
    progress: Progress | None
    correlation_id: str | None
    tags: tuple[str, ...]
    schedule: str | None
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    raw: dict[str, Any] = field(repr=False)

    @property
    def has_ended(self) -> bool:
        return self.status not in _LIVE

    @staticmethod
    def read(raw: dict[str, Any]) -> JobRecord:
        progress = raw.get("progress")
        return JobRecord(
            id=raw["id"],
            type=raw["type"],
            queue=raw["queue"],
            status=raw["status"],
            attempt=raw["attempt"],
            max_retries=raw["maxRetries"],
            args=raw.get("args"),
            result=raw.get("result"),
            error=raw.get("error"),
            progress=Progress(progress["percent"], progress.get("message")) if progress else None,
            correlation_id=raw.get("correlationId"),
            tags=tuple(raw.get("tags") or ()),
            schedule=raw.get("schedule"),
            created_at=instant(raw["createdAt"]),
            started_at=_instant(raw.get("startedAt")),
            completed_at=_instant(raw.get("completedAt")),
            raw=raw,
        )


@dataclass(frozen=True)
class LogLine:
    seq: int
    level: str
    message: str
    at: datetime
    attempt: int | None

    @staticmethod
    def read(raw: dict[str, Any]) -> LogLine:
        return LogLine(raw["seq"], raw["level"], raw["message"], instant(raw["at"]), raw.get("attempt"))


@dataclass(frozen=True)
class Cron:
    """The ticks of a cron expression. ``day`` decides if both of its day fields are restricted."""

    expression: str
    tz: str | None = None
    day: Literal["or", "and"] | None = None
    missed: Literal["skip", "latest", "all"] = "latest"
    overlap: Literal["skip", "allow"] = "skip"

    def fields(self) -> dict[str, Any]:
        fields = {
            "cron": self.expression,
            "tz": self.tz,
            "day": self.day,
            "missed": self.missed,
            "overlap": self.overlap,
        }
        return {name: value for name, value in fields.items() if value is not None}


@dataclass(frozen=True)
class Every:
    """A tick every ``interval``, counted from the schedule's creation."""

    interval: Duration
    missed: Literal["skip", "latest", "all"] = "latest"
    overlap: Literal["skip", "allow"] = "skip"

    def fields(self) -> dict[str, Any]:
        return {"every": text(self.interval), "missed": self.missed, "overlap": self.overlap}


@dataclass(frozen=True)
class Schedule:
    """A schedule as the server shows it. ``warnings`` has reasons why it may differ from what was intended."""

    name: str
    type: str
    cron: str | None
    every: str | None
    paused: bool
    next_run_at: datetime | None
    last_run_at: datetime | None
    warnings: tuple[str, ...]
    raw: dict[str, Any] = field(repr=False)

    @staticmethod
    def read(raw: dict[str, Any]) -> Schedule:
        return Schedule(
            name=raw["name"],
            type=raw["type"],
            cron=raw.get("cron"),
            every=raw.get("every"),
            paused=raw["paused"],
            next_run_at=_instant(raw.get("nextRunAt")),
            last_run_at=_instant(raw.get("lastRunAt")),
            warnings=tuple(raw.get("warnings") or ()),
            raw=raw,
        )


def _instant(text: str | None) -> datetime | None:
    return instant(text) if text else None
