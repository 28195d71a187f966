"""The thread that reports: all waiting events in one request; while that is under way the next are collected.

A batch is sent again until there is a response; ends are idempotent, so that is safe whether or not the first try
arrived. A batch that the server rejects is halved until the invalid event is alone: it must not block the others.
"""

from __future__ import annotations

import json
import threading

from .. import limits
from ..connection import Connection
from ..errors import Rejected, Unavailable
from ..servers import Backoff
from .log import logger
from .outbox import Event, Kind
from .run_table import RunTable
from .session import Session

_MANY = 10
_LINGER_S = 0.002
_ABOUT_THE_EVENTS = frozenset((400, 413, 422))


class Reporter:
    def __init__(self, session: Session, table: RunTable) -> None:
        self._session, self._table = session, table
        self._connection = Connection(session.servers)
        self._stop = threading.Event()

    def stop(self) -> None:
        self._stop.set()
        self._connection.interrupt()

    def run(self) -> None:
        while events := self._table.take():
            self._send(events)
            if len(events) > _MANY:
                # Runs end in quick succession: one request for many of them costs all threads less.
                self._stop.wait(_LINGER_S)
        self._connection.close()

    def _send(self, events: list[Event]) -> None:
        # Parts that are still to be sent, the first of them last.
        parts, backoff = [events], Backoff(self._session.servers)
        head = f'{{"workerId":{json.dumps(self._session.worker_id)},"events":['
        while parts and not self._stop.is_set():
            part = parts.pop()
            try:
                body = head + ",".join([event.text for event in part]) + "]}"
                reported = self._session.call(self._connection, "report", body)
            except Unavailable:
                parts.append(part)
                self._stop.wait(backoff.next_delay())
            except Rejected as error:
                if error.status not in _ABOUT_THE_EVENTS:
                    # A wrong token: an operator can correct it, and the results are kept.
                    logger.error("report rejected, retrying: %s", error)
                    parts.append(part)
                    self._stop.wait(Backoff.MAX_S)
                elif len(part) > 1:
                    half = len(part) // 2
                    parts += [part[half:], part[:half]]
                else:
                    self._drop(part[0], error)
            else:
                backoff.reset()
                self._accept(part, reported["rejected"])

    def _accept(self, part: list[Event], rejected: list[dict[str, str]]) -> None:
        stale = {each["executionId"] for each in rejected}
        if stale:
            logger.warning(
                "runs dropped: the server has ended them or given them to another worker count=%d", len(stale)
            )
        self._table.accepted(part, stale)

    def _drop(self, event: Event, error: Rejected) -> None:
        logger.error("event rejected job=%s kind=%s: %s", event.run.job_id, event.kind.name.lower(), error)
        if event.kind is Kind.END and '"kind":"failed"' not in event.text[:200]:
            reason = limits.cut(f"the server rejects the end of the run: {error}", limits.ERROR_BYTES_MAX)
            self._table.replace_end(event.run, event.run.failed(reason, retry=False))
