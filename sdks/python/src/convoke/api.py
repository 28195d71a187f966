"""The HTTP API as values: each function returns a request and the reading of its response. Nothing is sent here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar
from urllib.parse import quote, urlencode

from . import durations, limits, wire
from .connection import Call
from .errors import ConvokeError, InvalidArguments
from .options import Request
from .records import Cron, Every, JobRecord, LogLine, Schedule

T = TypeVar("T")

#: The longest wait that one request asks for. A longer wait is several requests.
WAIT_MAX_S = 60.0


@dataclass(frozen=True)
class Exchange(Generic[T]):
    call: Call
    read: Callable[[bytes], T]

    def parse(self, data: bytes) -> T:
        try:
            return self.read(data)
        except (ValueError, LookupError, TypeError, AttributeError) as error:
            what = f"the response to {self.call.method} {self.call.path} is not one of Convoke"
            raise ConvokeError(f"{what}: {error!r}") from error


@dataclass(frozen=True)
class Enqueued:
    """The job of an enqueue request: a new one, or the one that has the same unique key."""

    id: str
    created: bool


def enqueue(requests: Sequence[Request[Any]]) -> Exchange[list[Enqueued]]:
    if not 1 <= len(requests) <= limits.BATCH_JOBS_MAX:
        raise InvalidArguments("jobs", f"expected 1 to {limits.BATCH_JOBS_MAX} jobs, got {len(requests)}")
    body = ('{"jobs":[' + ",".join(request.body() for request in requests) + "]}").encode()
    if len(body) > limits.BATCH_BYTES_MAX:
        raise InvalidArguments("jobs", f"expected at most {limits.BATCH_BYTES_MAX} bytes in a batch, got {len(body)}")

    def read(data: bytes) -> list[Enqueued]:
        jobs: list[dict[str, Any]] = wire.decode(data)["jobs"]
        if len(jobs) != len(requests):
            raise ConvokeError(f"the server returned {len(jobs)} jobs for {len(requests)} requests")
        return [Enqueued(job["id"], job["created"]) for job in jobs]

    return Exchange(Call("POST", "/v1/jobs/batch", body), read)


def job(job_id: str, wait_s: float = 0.0) -> Exchange[JobRecord]:
    query = f"?wait={durations.text(min(wait_s, WAIT_MAX_S))}" if wait_s > 0 else ""
    return Exchange(Call("GET", f"/v1/jobs/{quote(job_id, safe='')}{query}", wait_s=min(wait_s, WAIT_MAX_S)), _job)


def cancel(job_id: str, reason: str | None) -> Exchange[JobRecord]:
    return Exchange(_post(f"/v1/jobs/{quote(job_id, safe='')}/cancel", {"reason": reason} if reason else None), _job)


def retry(job_id: str) -> Exchange[JobRecord]:
    return Exchange(_post(f"/v1/jobs/{quote(job_id, safe='')}/retry", None), _job)


def jobs(filters: dict[str, str | int | None]) -> Exchange[tuple[list[JobRecord], str | None]]:
    def read(data: bytes) -> tuple[list[JobRecord], str | None]:
        page = wire.decode(data)
        return [JobRecord.read(each) for each in page["jobs"]], page.get("nextCursor")

    query = urlencode({name: value for name, value in filters.items() if value is not None})
    return Exchange(Call("GET", f"/v1/jobs?{query}"), read)


def logs(job_id: str, after: int, limit: int) -> Exchange[list[LogLine]]:
    path = f"/v1/jobs/{quote(job_id, safe='')}/logs?after={after}&limit={limit}"
    return Exchange(Call("GET", path), lambda data: [LogLine.read(line) for line in wire.decode(data)["logs"]])


def put_schedule(name: str, timing: Cron | Every, request: Request[Any]) -> Exchange[Schedule]:
    fields = wire.encode(timing.fields(), "timing", limits.ARGS_BYTES_MAX)
    body = f"{fields[:-1]},{request.template()[1:]}".encode()
    return Exchange(Call("PUT", _schedule_path(name), body), _schedule)


def schedule(name: str) -> Exchange[Schedule]:
    return Exchange(Call("GET", _schedule_path(name)), _schedule)


def schedules() -> Exchange[list[Schedule]]:
    def read(data: bytes) -> list[Schedule]:
        return [Schedule.read(each) for each in wire.decode(data)["schedules"]]

    return Exchange(Call("GET", "/v1/schedules"), read)


def remove_schedule(name: str) -> Exchange[None]:
    return Exchange(Call("DELETE", _schedule_path(name)), lambda data: None)


def pause_schedule(name: str) -> Exchange[Schedule]:
    return Exchange(_post(f"{_schedule_path(name)}/pause", None), _schedule)


def resume_schedule(name: str) -> Exchange[Schedule]:
    return Exchange(_post(f"{_schedule_path(name)}/resume", None), _schedule)


def trigger_schedule(name: str) -> Exchange[JobRecord]:
    return Exchange(_post(f"{_schedule_path(name)}/trigger", None), _job)


def _schedule_path(name: str) -> str:
    return f"/v1/schedules/{quote(name, safe='')}"


def _post(path: str, body: dict[str, Any] | None) -> Call:
    return Call("POST", path, wire.encode(body or {}, "body", limits.BATCH_BYTES_MAX).encode())


def _job(data: bytes) -> JobRecord:
    return JobRecord.read(wire.decode(data))


def _schedule(data: bytes) -> Schedule:
    return Schedule.read(wire.decode(data))
