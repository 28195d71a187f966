"""The thread that starts the worker and ends it: register, work, drain, leave."""

from __future__ import annotations

import asyncio
import queue
import threading
import time
from collections.abc import Callable, Mapping
from typing import Any

from ..connection import Connection
from ..errors import ConvokeError, Unavailable
from ..jobs import Job
from ..servers import Backoff
from .fetcher import Fetcher
from .heartbeat import Heartbeat
from .log import logger
from .loop_watch import LoopWatch
from .reporter import Reporter
from .run_table import RunTable
from .session import Session
from .slots import Slots

#: How long a server that is away may delay the end of the worker.
_FLUSH_LIMIT_S = 5.0
_FLUSH_LIMIT_HURRY_S = 1.0
#: How long a handler of ``logging`` that blocks may delay the end of the worker.
_LOG_LIMIT_S = 0.2
#: How often a second order to stop is looked for while runs finish.
_ORDER_INTERVAL_S = 0.05


class Control(threading.Thread):
    """``on_end`` is called once, from this thread, with the error that ended the worker if there is one."""

    def __init__(
        self,
        session: Session,
        jobs: Mapping[str, Job[..., Any]],
        concurrency: int,
        drain_s: float,
        loop: asyncio.AbstractEventLoop,
        on_end: Callable[[BaseException | None], None],
    ) -> None:
        super().__init__(name="convoke-control", daemon=True)
        self._session, self._drain_s, self._on_end = session, drain_s, on_end
        # Orders to stop. A simple queue, because a signal handler puts them.
        self._orders = queue.SimpleQueue[None]()
        self._failure: BaseException | None = None
        self._registration: Connection | None = None
        watch = LoopWatch(loop, threading.get_ident())
        self._table = RunTable(concurrency)
        self.slots = Slots(jobs, self._table, loop, watch)
        self._fetcher = Fetcher(session, self._table, self.slots, self.stop)
        self._reporter = Reporter(session, self._table)
        self._heartbeat = Heartbeat(session, self._table, watch, self.stop)

    def stop(self) -> None:
        """Begins to drain; called again, releases what still runs at once. Safe in a signal handler."""
        self._orders.put(None)
        registration = self._registration
        if registration is not None:
            registration.interrupt()

    def run(self) -> None:
        error: BaseException | None = None
        try:
            if self._register():
                self._work()
        except BaseException as caught:
            error = caught
        logger.flush(_LOG_LIMIT_S)
        self._on_end(error)

    def _register(self) -> bool:
        """Registers, for as long as that takes. Returns false if the worker was stopped before."""
        connection, backoff = Connection(self._session.servers), Backoff(self._session.servers)
        self._registration = connection
        try:
            while not self._is_ordered(0):
                try:
                    self._session.register(connection)
                    return True
                except Unavailable:
                    if self._is_ordered(backoff.next_delay()):
                        return False
            return False
        finally:
            self._registration = None
            connection.close()

    def _work(self) -> None:
        for name, duty in (("fetcher", self._fetcher), ("reporter", self._reporter), ("heartbeat", self._heartbeat)):
            threading.Thread(target=self._attend, args=(duty.run,), name=f"convoke-{name}", daemon=True).start()
        self._orders.get()
        self._fetcher.stop()
        self._table.stop_fetching()
        is_hurried = not self._finish()
        limit_s = _FLUSH_LIMIT_HURRY_S if is_hurried else _FLUSH_LIMIT_S
        if not self._table.wait_until_sent(limit_s):
            logger.warning("the end of the last runs could not be reported: they will run again")
        self._heartbeat.stop()
        self._reporter.stop()
        self._leave()
        self._table.close()
        logger.info("worker stopped worker=%s", self._session.worker_id)
        if self._failure is not None:
            raise self._failure

    def _attend(self, duty: Callable[[], None]) -> None:
        """Runs a thread's duty. A worker whose thread dies of a bug must not look alive: it drains and raises."""
        try:
            duty()
        except BaseException as error:
            self._failure = error
            self.stop()

    def _finish(self) -> bool:
        """Lets runs finish within the grace period and releases the rest. Returns false if it was cut short."""
        if self._table.wait_until_over(0):
            return True
        self._heartbeat.drain()
        logger.info("draining: runs may finish within %g s", self._drain_s)
        end_s, is_hurried = time.monotonic() + self._drain_s, False
        while not is_hurried and time.monotonic() < end_s:
            if self._table.wait_until_over(min(_ORDER_INTERVAL_S, max(0.0, end_s - time.monotonic()))):
                return True
            is_hurried = self._is_ordered(0)
        logger.warning("unfinished runs are released count=%d", self._table.release_all())
        return not is_hurried

    def _is_ordered(self, timeout_s: float) -> bool:
        try:
            self._orders.get(timeout=timeout_s) if timeout_s else self._orders.get_nowait()
            return True
        except queue.Empty:
            return False

    def _leave(self) -> None:
        connection = Connection(self._session.servers)
        try:
            self._session.leave(connection)
        except ConvokeError as error:
            logger.warning("leaving failed: %s", error)
        finally:
            connection.close()
