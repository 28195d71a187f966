"""Finds out which job blocks the event loop, and logs it once for each time it does."""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any

from .log import logger
from .run import Run

_BLOCKED_AFTER_S = 1.0


class LoopWatch:
    """Asked by the heartbeat thread; the event loop itself only has to run one callback a second."""

    def __init__(self, loop: asyncio.AbstractEventLoop, loop_thread: int) -> None:
        self._loop, self._loop_thread = loop, loop_thread
        self._runs = dict[int, Run]()
        self._asked_s: float | None = None
        self._is_logged = False

    def started(self, task: asyncio.Task[Any], run: Run) -> None:
        self._runs[id(task)] = run

    def ended(self, task: asyncio.Task[Any]) -> None:
        self._runs.pop(id(task), None)

    def check(self) -> None:
        now_s = time.monotonic()
        if self._asked_s is None:
            if self._runs:
                self._asked_s, self._is_logged = now_s, False
                self._call_soon()
        elif now_s - self._asked_s >= _BLOCKED_AFTER_S and not self._is_logged:
            self._is_logged = True
            self._log(now_s - self._asked_s)

    def _call_soon(self) -> None:
        try:
            self._loop.call_soon_threadsafe(self._respond)
        except RuntimeError:
            pass  # The loop is closed.

    def _respond(self) -> None:
        self._asked_s = None

    def _log(self, blocked_s: float) -> None:
        task = asyncio.current_task(self._loop)
        run = self._runs.get(id(task)) if task else None
        frame = sys._current_frames().get(self._loop_thread)  # pyright: ignore[reportPrivateUsage]
        place = f"{frame.f_code.co_filename}:{frame.f_lineno}" if frame else "unknown"
        job = f"job={run.job_id} type={run.type}" if run else "by code that is not a job"
        logger.warning(
            "event loop blocked for %.1f s: %s at=%s. Use def instead of async def for code that blocks: "
            "it then runs in a thread",
            blocked_s,
            job,
            place,
        )
