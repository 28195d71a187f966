"""The runs in hand: those that wait for a slot, that run, and whose end was not accepted yet.

One short lock protects all of it. A slot takes it once per run, to record the end of the last one and to take the next;
the threads take it once per request. A run is in ``_runs`` from when it was fetched until its end was accepted or
rejected, and heartbeats list these: a run that is missing there is given to another worker.
"""

from __future__ import annotations

import json
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

from .. import limits
from .log import logger
from .outbox import Event, Kind, Outbox
from .pace import Pace
from .run import Run
from .timers import Timers

#: The start of a run is reported this late, so that a fast run sends all its events in one request.
_START_HELD_S = 0.1
#: A run that was fetched ahead is released if it has found no slot after this time.
_WAIT_MAX_S = 1.0


class RunTable:
    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        # Reentrant: a finalizer that writes to a job's log may run in the middle of anything, also in here.
        self._lock = threading.RLock()
        #: Notified when there are events to send, or when an action is due sooner.
        self._news = threading.Condition(self._lock)
        #: Notified when there may be room for more runs.
        self._room = threading.Condition(self._lock)
        #: Notified when a run is over, and when events were sent.
        self._progressed = threading.Condition(self._lock)
        self._runs = dict[str, Run]()
        self._waiting = deque[Run]()
        self._busy = 0
        self._live = 0
        self._sending = False
        self._is_closed = False
        self._is_draining = False
        #: Nobody is notified who does not wait: most runs end while the other threads are busy.
        self._reporter_waits = False
        self._room_waiters = 0
        #: Runs whose start is not reported yet, the oldest first.
        self._held = deque[Run]()
        self._outbox = Outbox()
        self._timers = Timers()
        self._pace = Pace()
        self._parked = dict[str, tuple[Run, str]]()
        self._dropped = 0

    # Fetching

    def wait_for_room(self, timeout_s: float) -> int:
        """Returns how many runs to poll for; 0 if there is no room within this time."""
        with self._lock:
            if self._wanted() == 0:
                self._room_waiters += 1
                self._room.wait(timeout_s)
                self._room_waiters -= 1
            return self._wanted()

    def _wanted(self) -> int:
        if self._is_draining or not self._outbox.has_room:
            return 0
        target = self._concurrency + self._pace.prefetch(self._concurrency)
        wanted = target - self._busy - len(self._waiting)
        # One poll for many runs: as long as runs wait, it can wait too.
        if self._waiting and wanted * 2 < target:
            return 0
        return max(0, min(wanted, limits.POLL_JOBS_MAX))

    def accept(self, assignments: Iterable[dict[str, Any]]) -> list[Run]:
        """Adds fetched runs. Returns those that start now."""
        ready = list[Run]()
        with self._lock:
            if self._is_draining:
                return ready  # The server releases them when the worker leaves.
            due_s = time.monotonic() + _WAIT_MAX_S
            for assignment in assignments:
                run = Run(assignment)
                # A response that came twice must not start a run twice.
                if run.execution_id in self._runs:
                    continue
                self._runs[run.execution_id] = run
                self._live += 1
                self._waiting.append(run)
            while self._busy < self._concurrency and (following := self._next()):
                ready.append(following)
            if self._waiting:
                self._at(due_s, self._waiting[-1], self._release_untaken)
        return ready

    def _next(self) -> Run | None:
        while self._waiting:
            run = self._waiting.popleft()
            if not run.is_over:
                self._busy += 1
                run.start()
                if not self._held and self._reporter_waits:
                    self._news.notify()
                self._held.append(run)
                if run.timeout_s is not None:
                    self._at(run.started_s + run.timeout_s, run, self._time_out)
                return run
        return None

    # Running

    def turn(self, run: Run, end: str, retry_after_s: float | None = None) -> Run | None:
        """Records how a slot's run ended and returns its next. With ``None`` the slot is free."""
        now_s = time.monotonic()
        with self._lock:
            self._busy -= 1
            if not run.is_over:
                self._pace.ended(now_s - run.started_s)
                if retry_after_s and not self._is_draining:
                    self._park(run, end, now_s + retry_after_s)
                else:
                    self._end(run, end)
            following = self._next()
            self._offer_room()
            return following

    def _offer_room(self) -> None:
        if self._room_waiters and self._wanted():
            self._room.notify_all()

    def _park(self, run: Run, end: str, due_s: float) -> None:
        """Keeps a run without a slot until its failure is reported. Its own deadline comes first."""
        run.stopped = True
        if run.timeout_s is not None:
            due_s = min(due_s, run.started_s + run.timeout_s - 0.05)
        self._parked[run.execution_id] = (run, end)
        self._at(due_s, run, self._unpark)

    def _unpark(self, run: Run) -> None:
        self._end(run, self._parked[run.execution_id][1])

    def _end(self, run: Run, end: str | None) -> None:
        """Marks a run as over, and sends its end if there is one to send."""
        run.is_over = run.stopped = True
        self._live -= 1
        if self._parked:
            self._parked.pop(run.execution_id, None)
        if end is None:
            self._runs.pop(run.execution_id, None)
        else:
            self._send(Event(run, Kind.END, end))
        if self._is_draining:
            self._progressed.notify_all()

    def log(self, run: Run, message: str, level: str) -> None:
        with self._lock:
            if self._has_room_for(run):
                run.lines += 1
                text = f',"message":{json.dumps(message)},"level":"{level}","seq":{run.lines}'
                self._report(Event(run, Kind.LOG, run.event("log", text)))

    def progress(self, run: Run, percent: int, message: str | None) -> None:
        with self._lock:
            if self._has_room_for(run):
                text = f',"percent":{percent}' + (f',"message":{json.dumps(message)}' if message else "")
                self._report(Event(run, Kind.PROGRESS, run.event("progress", text)))

    def _has_room_for(self, run: Run) -> bool:
        if not run.is_over and not self._outbox.has_room_for_chatter:
            self._dropped += 1
            return False
        return not run.is_over

    def _report(self, event: Event) -> None:
        # The start of a run must be sent before its other events.
        self._report_start(event.run)
        self._send(event)

    def _report_start(self, run: Run) -> None:
        if not run.is_start_reported:
            run.is_start_reported = True
            self._send(Event(run, Kind.START, run.event("started", at=run.started_at)))

    def _send(self, event: Event) -> None:
        self._outbox.push(event)
        if self._reporter_waits:
            self._news.notify()

    def _at(self, at_s: float, run: Run, action: Callable[[Run], None]) -> None:
        if self._timers.push(at_s, run, action) and self._reporter_waits:
            self._news.notify()

    def _release_untaken(self, run: Run) -> None:
        """Releases runs that were fetched ahead and found no slot: another worker may have one."""
        if run not in self._waiting:
            return
        self._pace.was_too_fast()
        for each in self._waiting:
            if not each.is_over:
                self._end(each, each.event("released"))
        self._waiting.clear()

    def _time_out(self, run: Run) -> None:
        error = f"the run took longer than {run.timeout_s:g} s"
        self._end(run, run.event("timedOut", f',"error":{json.dumps(error)}'))
        self._interrupt([run])

    # Reporting

    def take(self) -> list[Event]:
        """Waits for events and returns them; none if the worker is closed."""
        with self._lock:
            self._sending = False
            if self._is_draining:
                self._progressed.notify_all()
            while not self._is_closed:
                now_s = time.monotonic()
                self._report_held(now_s)
                for run, action in self._timers.pop_due(now_s):
                    if not run.is_over:
                        action(run)
                if len(self._outbox):
                    self._sending = True
                    return self._outbox.take()
                self._reporter_waits = True
                self._news.wait(self._delay_s(now_s))
                self._reporter_waits = False
            return []

    def _report_held(self, now_s: float) -> None:
        while self._held and (self._held[0].is_over or self._held[0].started_s + _START_HELD_S <= now_s):
            run = self._held.popleft()
            if not run.is_over:
                self._report_start(run)

    def _delay_s(self, now_s: float) -> float | None:
        """Returns how long the reporter may wait if there is no news."""
        delay_s = self._timers.delay_s(now_s)
        if self._held:
            held_s = max(0.0, self._held[0].started_s + _START_HELD_S - now_s)
            return held_s if delay_s is None else min(held_s, delay_s)
        return delay_s

    def accepted(self, events: list[Event], rejected: set[str]) -> None:
        """Forgets runs whose end is recorded, and stops those that are no longer this worker's."""
        with self._lock:
            for event in events:
                if event.kind is Kind.END:
                    self._runs.pop(event.run.execution_id, None)
            stale = [run for each in rejected if (run := self._runs.get(each))]
            self._drop(stale)
            self._offer_room()

    def replace_end(self, run: Run, end: str) -> None:
        """Sends another end for a run whose own the server does not accept."""
        with self._lock:
            if run.execution_id in self._runs:
                self._send(Event(run, Kind.END, end))

    # Heartbeats

    def in_hand(self) -> list[str]:
        with self._lock:
            return list(self._runs)

    def cancel(self, executions: Iterable[str]) -> int:
        """Stops runs that the server has ended or given to another worker. Nothing more is reported of them."""
        with self._lock:
            runs = [run for each in executions if (run := self._runs.get(each)) and not run.is_over]
            self._drop(runs)
            return len(runs)

    def _drop(self, runs: list[Run]) -> None:
        for run in runs:
            if run.is_over:
                self._runs.pop(run.execution_id, None)
            else:
                self._end(run, None)
        self._interrupt(runs)

    def _interrupt(self, runs: list[Run]) -> None:
        # Only schedules a call on the event loop, so it may be done under the lock.
        for run in runs:
            if run.interrupt is not None:
                run.interrupt()

    # Draining

    def stop_fetching(self) -> None:
        """Releases the runs that have not started: they can start elsewhere at once. Reports kept retries."""
        with self._lock:
            self._is_draining = True
            for run, end in list(self._parked.values()):
                self._end(run, end)
            for run in self._waiting:
                if not run.is_over:
                    self._end(run, run.event("released"))
            self._waiting.clear()
            self._room.notify_all()

    def wait_until_over(self, timeout_s: float) -> bool:
        """Waits until no run is live. Returns whether that is so."""
        with self._lock:
            return self._progressed.wait_for(lambda: self._live == 0, timeout_s)

    def release_all(self) -> int:
        with self._lock:
            runs = [run for run in self._runs.values() if not run.is_over]
            for run in runs:
                self._end(run, run.event("released"))
            self._interrupt(runs)
            return len(runs)

    def wait_until_sent(self, timeout_s: float) -> bool:
        with self._lock:
            return self._progressed.wait_for(lambda: not self._sending and not len(self._outbox), timeout_s)

    def close(self) -> None:
        """Ends the threads that wait here."""
        with self._lock:
            if self._dropped:
                logger.warning("log lines and progress were dropped while the server was away count=%d", self._dropped)
            self._is_closed = True
            self._news.notify_all()
            self._room.notify_all()
