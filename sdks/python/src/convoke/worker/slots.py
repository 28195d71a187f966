"""Calls handlers: coroutines on the event loop, functions in a pool of threads, together up to the concurrency."""

from __future__ import annotations

import asyncio
import contextvars
import functools
import queue
import threading
from collections.abc import Mapping
from typing import Any

from ..jobs import Job
from .call import call_coroutine, call_function
from .loop_watch import LoopWatch
from .run import Run
from .run_table import RunTable


class Slots:
    """A slot goes on with the next run as soon as one ends; an idle thread waits for the next."""

    def __init__(
        self,
        jobs: Mapping[str, Job[..., Any]],
        table: RunTable,
        loop: asyncio.AbstractEventLoop,
        watch: LoopWatch,
    ) -> None:
        self._jobs, self._table, self._loop, self._watch = jobs, table, loop, watch
        self._queue = queue.SimpleQueue[Run]()
        self._lock = threading.Lock()
        self._idle = 0
        # The loop keeps weak references to tasks only.
        self._tasks = set[asyncio.Task[None]]()

    def start(self, runs: list[Run]) -> None:
        """Starts runs, from any thread."""
        coroutines = list[Run]()
        for run in runs:
            if self._is_async(run):
                coroutines.append(run)
            else:
                self._start_in_thread(run)
        if coroutines:
            self._call_soon(coroutines)

    def _is_async(self, run: Run) -> bool:
        job = self._jobs.get(run.type)
        return job is not None and job.is_async

    # Functions

    def _start_in_thread(self, run: Run) -> None:
        with self._lock:
            is_served = self._idle > 0
            self._idle -= 1 if is_served else 0
        self._queue.put(run)
        if not is_served:
            # About as many as the concurrency: a run is started only if a slot is free.
            threading.Thread(target=self._serve_queue, name="convoke-pool", daemon=True).start()

    def _serve_queue(self) -> None:
        while True:
            run: Run | None = self._queue.get()
            while run is not None:
                # A context of its own: what one handler sets must not be seen by the next.
                end, retry_after_s = contextvars.Context().run(
                    call_function, self._jobs.get(run.type), run, self._table
                )
                run = self._table.turn(run, end, retry_after_s)
                if run is not None and self._is_async(run):
                    self._call_soon([run])
                    run = None
            with self._lock:
                self._idle += 1

    # Coroutines

    def _call_soon(self, runs: list[Run]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._start_tasks, runs)
        except RuntimeError:
            pass  # The loop is closed: the worker ends, and the server releases the runs.

    def _start_tasks(self, runs: list[Run]) -> None:
        for run in runs:
            task = self._loop.create_task(self._attend(run))
            run.interrupt = functools.partial(self._interrupt, run, task)
            self._tasks.add(task)
            self._watch.started(task, run)

    def _interrupt(self, run: Run, task: asyncio.Task[None]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._cancel, run, task)
        except RuntimeError:
            pass  # The loop is closed, and the task with it.

    def _cancel(self, run: Run, task: asyncio.Task[None]) -> None:
        # A task that is cancelled before its first step would never run, and its slot never be free.
        if run.has_begun:
            task.cancel()

    async def _attend(self, run: Run) -> None:
        task = asyncio.current_task()
        assert task is not None
        run.has_begun = True
        end, retry_after_s = ("", None) if run.is_over else await call_coroutine(self._jobs[run.type], run, self._table)
        self._watch.ended(task)
        self._tasks.discard(task)
        following = self._table.turn(run, end, retry_after_s)
        if following is None:
            return
        if self._is_async(following):
            self._start_tasks([following])
        else:
            self._start_in_thread(following)

    async def wait_for_tasks(self, timeout_s: float) -> None:
        """Waits for coroutines that were interrupted and clean up."""
        if self._tasks:
            await asyncio.wait(set(self._tasks), timeout=timeout_s)
