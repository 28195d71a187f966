"""The thread that renews the leases of all runs in hand, whatever their handlers do."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

from ..connection import Connection
from ..errors import Rejected, Unavailable
from ..servers import Backoff
from .log import logger
from .loop_watch import LoopWatch
from .run_table import RunTable
from .session import Session

#: How often the event loop is checked.
_WATCH_INTERVAL_S = 1.0


class Heartbeat:
    def __init__(self, session: Session, table: RunTable, watch: LoopWatch, on_drain: Callable[[], None]) -> None:
        self._session, self._table, self._watch, self._on_drain = session, table, watch, on_drain
        self._connection = Connection(session.servers)
        self._is_draining = False
        self._is_stopped = False

    def drain(self) -> None:
        """The server must not count the worker's slots any more."""
        self._is_draining = True
        self._session.beat_now.set()

    def stop(self) -> None:
        self._is_stopped = True
        self._session.beat_now.set()
        self._connection.interrupt()

    def run(self) -> None:
        backoff = Backoff(self._session.servers)
        # The first one at once: until it has arrived an open poll counts as a sign of life, also of a frozen process.
        due_s = time.monotonic()
        while not self._is_stopped:
            is_asked = self._session.beat_now.wait(min(_WATCH_INTERVAL_S, max(0.0, due_s - time.monotonic())))
            if self._is_stopped:
                break
            self._watch.check()
            if not is_asked and time.monotonic() < due_s:
                continue
            self._session.beat_now.clear()
            if self._beat():
                backoff.reset()
                delay_s = self._session.heartbeat_interval_s
            else:
                delay_s = min(backoff.next_delay(), self._session.heartbeat_interval_s)
            due_s = time.monotonic() + delay_s
        self._connection.close()

    def _beat(self) -> bool:
        running = self._table.in_hand()
        body = {"workerId": self._session.worker_id, "running": running, "draining": self._is_draining}
        try:
            reply = self._session.call(self._connection, "heartbeat", json.dumps(body))
        except (Unavailable, Rejected) as error:
            if isinstance(error, Rejected):
                logger.error("heartbeat rejected: %s", error)
            return False
        count = self._table.cancel(reply["cancel"])
        if count:
            logger.info("runs stopped: the server has ended them count=%d", count)
        if reply.get("drain") and not self._is_draining:
            logger.info("draining: the server asked for it")
            self._on_drain()
        return True
