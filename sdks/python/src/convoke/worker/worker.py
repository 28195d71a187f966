"""The public worker: its settings, and the two ways to run it."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import socket
import threading
from collections.abc import Sequence
from types import FrameType
from typing import Any

from .. import limits
from ..app import App
from ..durations import Duration, seconds
from ..identifiers import worker_id
from ..servers import Servers
from .control import Control
from .session import Session

#: How long coroutines that were interrupted may clean up.
_CLEAN_UP_S = 1.0
#: How long the worker may take after a second signal to release its runs, before the process ends anyway.
_AT_ONCE_S = 1.0


class Worker:
    """Runs the jobs of an app.

    ``queues`` are those of its jobs if they are left out. ``drain`` is how long runs may go on after the worker was
    asked to stop; what is unfinished then is released, and another worker runs it.
    """

    def __init__(
        self,
        app: App,
        *,
        queues: Sequence[str] | None = None,
        concurrency: int = 10,
        drain: Duration = "25s",
        name: str | None = None,
        id: str | None = None,
        server: str | Sequence[str] | None = None,
        token: str | None = None,
    ) -> None:
        self.queues = list(queues) if queues else sorted({job.queue for job in app.jobs.values()})
        if not 1 <= len(self.queues) <= limits.QUEUES_MAX:
            raise ValueError(f"queues: expected 1 to {limits.QUEUES_MAX}, got {len(self.queues)}; is any job defined?")
        if not 1 <= concurrency <= limits.CONCURRENCY_MAX:
            raise ValueError(f"concurrency: expected 1 to {limits.CONCURRENCY_MAX}, got {concurrency}")
        self.concurrency = concurrency
        self.id = id or worker_id()
        self._app = app
        self._drain_s = seconds(drain)
        self._name = name or f"{socket.gethostname()}:{os.getpid()}"
        self._servers = Servers(server or app.server, token or app.token)
        self._control: Control | None = None
        self._is_stopped_early = False
        self._lock = threading.Lock()
        #: Set once the worker has left the server, although a handler may still block the event loop.
        self.has_left = threading.Event()

    async def serve(self) -> None:
        """Works in the running event loop until ``stop``. Installs no signal handlers.

        If the task that awaits this is cancelled, unfinished runs are released at once.
        """
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()

        def on_end(error: BaseException | None) -> None:
            self.has_left.set()
            try:
                loop.call_soon_threadsafe(_settle, ended, error)
            except RuntimeError:
                pass  # The loop was closed without waiting for this worker.

        self.has_left.clear()
        control = self._new_control(loop, on_end)
        try:
            await asyncio.shield(ended)
        except asyncio.CancelledError:
            control.stop()
            control.stop()
            await asyncio.wait([ended])
            raise
        finally:
            await control.slots.wait_for_tasks(_CLEAN_UP_S)
            with self._lock:
                self._control = None

    def _new_control(self, loop: asyncio.AbstractEventLoop, on_end: Any) -> Control:
        session = Session(self._servers, self.id, self._name, self.queues, self.concurrency)
        with self._lock:
            if self._control is not None:
                raise RuntimeError("this worker runs already")
            self._control = Control(session, self._app.jobs, self.concurrency, self._drain_s, loop, on_end)
            self._control.start()
            if self._is_stopped_early:
                self._control.stop()
                self._is_stopped_early = False
            return self._control

    def stop(self) -> None:
        """Begins to drain; called again, releases what still runs at once. Safe in threads and signal handlers."""
        control = self._control
        if control is not None:
            control.stop()
        else:
            # A signal between the start of the process and that of the worker.
            self._is_stopped_early = True

    def run(self) -> None:
        """Works until SIGTERM or SIGINT, then drains; a second signal ends it at once.

        After a second signal runs are released, and the process ends within a second, whatever else is going on: the
        server may be away, and handlers may block. Uses an event loop of its own, which is not set as the loop of the
        thread. Signals are handled only if this is the main thread.
        """
        loop = asyncio.new_event_loop()
        # A simple queue, because a signal handler puts into it.
        second = queue.SimpleQueue[bool]()
        handlers = self._handle_signals(second) if threading.current_thread() is threading.main_thread() else {}
        try:
            loop.run_until_complete(self.serve())
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            second.put(False)

    def _handle_signals(self, second: queue.SimpleQueue[bool]) -> dict[int, Any]:
        count = 0

        def handle(number: int, frame: FrameType | None) -> None:
            nonlocal count
            count += 1
            if count == 2:
                second.put(True)
            self.stop()

        threading.Thread(target=_end_at_once, args=(second,), name="convoke-signals", daemon=True).start()
        return {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}


def _end_at_once(second: queue.SimpleQueue[bool]) -> None:
    """Ends the process after a second signal, unless the worker ends first."""
    if not second.get():
        return
    try:
        second.get(timeout=_AT_ONCE_S)
    except queue.Empty:
        os._exit(1)


def _settle(ended: asyncio.Future[None], error: BaseException | None) -> None:
    if ended.done():
        return
    if error is None:
        ended.set_result(None)
    else:
        ended.set_exception(error)
