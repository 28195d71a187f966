"""Several workers, one a process, for handlers that need more than one processor. One that dies is started again.

Each worker holds the reading end of a pipe that only the supervisor can write to. It ends when the supervisor does,
however that dies: workers that nobody supervises would never be stopped.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

logger = logging.getLogger("convoke.processes")

_PROCESSES_MAX = 1_024
#: A worker that lives shorter than this is started again later each time.
_SHORT_LIFE_S = 10.0
_DELAY_MAX_S = 30.0


#: The number of the pipe, for the worker's process.
_PIPE = "CONVOKE_SUPERVISOR_PIPE"


def watch_supervisor(stop: Callable[[], None]) -> None:
    """Calls ``stop`` if the supervisor of this process dies. Does nothing in a process without one."""
    pipe = os.environ.pop(_PIPE, None)
    if pipe is not None:
        threading.Thread(target=_wait_for_end, args=(int(pipe), stop), name="convoke-supervisor", daemon=True).start()


def _wait_for_end(pipe: int, stop: Callable[[], None]) -> None:
    # Nothing is ever written: a read returns when the last writer is gone.
    os.read(pipe, 1)
    stop()


class _Child:
    def __init__(self, arguments: list[str], pipe: int) -> None:
        self._command = [sys.executable, "-m", "convoke", *arguments]
        self._pipe = pipe
        self._short_lives = 0
        self.start()

    def start(self) -> None:
        self._started_s = time.monotonic()
        # A group of its own: Ctrl-C reaches the supervisor, which passes it on once.
        environment = {**os.environ, _PIPE: str(self._pipe)}
        self.process = subprocess.Popen(self._command, env=environment, pass_fds=(self._pipe,), start_new_session=True)

    def restart_delay_s(self) -> float:
        is_short = time.monotonic() - self._started_s < _SHORT_LIFE_S
        self._short_lives = self._short_lives + 1 if is_short else 0
        return min(_DELAY_MAX_S, 0.5 * (1 << min(self._short_lives, 10))) if is_short else 0.0


def supervise(arguments: list[str], count: int) -> int:
    """Runs ``count`` workers until SIGTERM or SIGINT; passes signals on to them. Returns the exit code."""
    if not 1 <= count <= _PROCESSES_MAX:
        raise ValueError(f"processes: expected 1 to {_PROCESSES_MAX}, got {count}")
    signals = 0

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal signals
        signals += 1

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, handle)
    # Only the reading end is passed on: workers and what they start must not keep the pipe open.
    read_end, _ = os.pipe()
    children = [_Child(arguments, read_end) for _ in range(count)]
    restart_at_s = dict[_Child, float]()
    passed_on = 0
    while True:
        while passed_on < signals:
            passed_on += 1
            for child in children:
                _signal(child)
        alive = [child for child in children if child.process.poll() is None]
        if signals and not alive:
            return max((abs(child.process.returncode) for child in children), default=0)
        for child in children if not signals else ():
            if child in alive:
                continue
            if child not in restart_at_s:
                restart_at_s[child] = time.monotonic() + child.restart_delay_s()
                logger.error("worker process ended pid=%d code=%s", child.process.pid, child.process.returncode)
            elif time.monotonic() >= restart_at_s[child]:
                del restart_at_s[child]
                child.start()
        time.sleep(0.05)


def _signal(child: _Child) -> None:
    try:
        os.kill(child.process.pid, signal.SIGTERM)
    except ProcessLookupError:
        pass
