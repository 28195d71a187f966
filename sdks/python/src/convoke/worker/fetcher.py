"""The thread that fetches: one poll at a time, for as many runs as there is room."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

from ..connection import Connection, Interrupted
from ..errors import Rejected, Unavailable
from ..servers import Backoff
from .log import logger
from .run_table import RunTable
from .session import Session
from .slots import Slots

_POLL_WAIT_S = 20
#: A worker of short jobs is full all the time, and never for long.
_FULL_FOR_S = 0.25
_MANY = 10
_LINGER_S = 0.002
#: An empty response that came sooner than this did not wait.
_HASTY_S = 0.005


class Fetcher:
    def __init__(self, session: Session, table: RunTable, slots: Slots, on_drain: Callable[[], None]) -> None:
        self._session, self._table, self._slots, self._on_drain = session, table, slots, on_drain
        self._connection = Connection(session.servers)
        self._stop = threading.Event()
        self._polls_for_none = False
        self._gate = threading.Lock()

    def stop(self) -> None:
        """Ends the poll that is under way. Runs that it may have received are released when the worker leaves."""
        self._stop.set()
        self._connection.interrupt()

    def run(self) -> None:
        backoff = Backoff(self._session.servers)
        while not self._stop.is_set():
            asked_s = time.monotonic()
            try:
                polled = self._poll()
            except Interrupted:
                continue
            except (Unavailable, Rejected) as error:
                if isinstance(error, Rejected):
                    logger.error("poll rejected, retrying: %s", error)
                self._stop.wait(backoff.next_delay())
                continue
            if self._stop.is_set():
                break
            is_empty = not polled["jobs"] and not polled["cancel"]
            self._slots.start(self._table.accept(polled["jobs"]))
            self._table.cancel(polled["cancel"])
            if polled.get("drain"):
                logger.info("draining: the server asked for it")
                self._on_drain()
                break
            # A server that returns nothing at once must not be polled in a tight loop.
            if is_empty and time.monotonic() - asked_s < _HASTY_S:
                self._stop.wait(backoff.next_delay())
            else:
                backoff.reset()
            if len(polled["jobs"]) > _MANY:
                # Runs come in quick succession: one response with many of them costs all threads less.
                self._stop.wait(_LINGER_S)
        self._connection.close()

    def _poll(self) -> dict[str, Any]:
        """Polls for as many runs as there is room. A worker that stays full waits for cancellations only."""
        wanted = self._table.wait_for_room(_FULL_FOR_S)
        if self._stop.is_set():
            raise Interrupted("the worker stops")
        if wanted == 0:
            self._polls_for_none = True
            threading.Thread(target=self._watch_room, name="convoke-room", daemon=True).start()
        body = {"workerId": self._session.worker_id, "max": wanted, "wait": f"{_POLL_WAIT_S}s"}
        try:
            return self._session.call(self._connection, "poll", json.dumps(body), _POLL_WAIT_S)
        finally:
            with self._gate:
                self._polls_for_none = False

    def _watch_room(self) -> None:
        """Ends the poll for none once there is room. A poll for runs must not be ended: its runs would be lost."""
        while self._polls_for_none:
            if self._table.wait_for_room(_FULL_FOR_S):
                with self._gate:
                    if self._polls_for_none:
                        self._connection.interrupt()
                return
