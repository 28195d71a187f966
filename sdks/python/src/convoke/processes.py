"""Several workers, one a process, for handlers that need more than one processor. One that dies is started again."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import time
from types import FrameType

logger = logging.getLogger("convoke.processes")

_PROCESSES_MAX = 1_024
#: A worker that lives shorter than this is started again later each time.
_SHORT_LIFE_S = 10.0
_DELAY_MAX_S = 30.0


class _Child:
    def __init__(self, arguments: list[str]) -> None:
        self._command = [sys.executable, "-m", "convoke", *arguments]
        self._short_lives = 0
        self.start()

    def start(self) -> None:
        self._started_s = time.monotonic()
        # A group of its own: Ctrl-C reaches the supervisor, which passes it on once.
        self.process = subprocess.Popen(self._command, start_new_session=True)

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
    children = [_Child(arguments) for _ in range(count)]
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
