"""The log of the worker's own threads. They never wait for it.

``logging`` calls a handler under a lock. A handler that blocks, or a job that blocks inside of one, would hold that
lock, and with it whoever writes a line: also the thread that renews the leases. So lines go into a queue, and a thread
that nobody waits for passes them to ``logging``. Beyond 1,000 waiting lines they are dropped, and counted.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from typing import NamedTuple

_LINES_MAX = 1_000


class _Line(NamedTuple):
    level: int
    message: str
    arguments: tuple[object, ...]
    created_s: float
    thread: str


class _Log:
    def __init__(self, name: str) -> None:
        self._name = name
        self._lines = queue.SimpleQueue["_Line | threading.Event"]()
        self._starting = threading.Lock()
        self._is_started = False
        self._dropped = 0

    def info(self, message: str, *arguments: object) -> None:
        self._put(logging.INFO, message, arguments)

    def warning(self, message: str, *arguments: object) -> None:
        self._put(logging.WARNING, message, arguments)

    def error(self, message: str, *arguments: object) -> None:
        self._put(logging.ERROR, message, arguments)

    def flush(self, timeout_s: float) -> bool:
        """Waits until all lines are written, at most so long. Returns whether they are."""
        written = threading.Event()
        self._lines.put(written)
        self._start()
        return written.wait(timeout_s)

    def _put(self, level: int, message: str, arguments: tuple[object, ...]) -> None:
        if self._lines.qsize() >= _LINES_MAX:
            self._dropped += 1
            return
        self._lines.put(_Line(level, message, arguments, time.time(), threading.current_thread().name))
        self._start()

    def _start(self) -> None:
        if self._is_started:
            return
        with self._starting:
            if not self._is_started:
                self._is_started = True
                threading.Thread(target=self._write_lines, name="convoke-log", daemon=True).start()

    def _write_lines(self) -> None:
        while True:
            line = self._lines.get()
            if isinstance(line, threading.Event):
                line.set()
                continue
            self._write(line)
            dropped, self._dropped = self._dropped, 0
            if dropped:
                text = "lines of this log were dropped: its handlers block count=%d"
                self._write(_Line(logging.WARNING, text, (dropped,), time.time(), "convoke-log"))

    def _write(self, line: _Line) -> None:
        target = logging.getLogger(self._name)
        if not target.isEnabledFor(line.level):
            return
        record = target.makeRecord(self._name, line.level, "(convoke)", 0, line.message, line.arguments, None)
        record.created, record.threadName = line.created_s, line.thread
        record.msecs = (line.created_s - int(line.created_s)) * 1_000
        try:
            target.handle(record)
        except Exception:
            pass  # A handler of the application is wrong; the next line may have another.


logger = _Log("convoke.worker")
