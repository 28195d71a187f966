"""The events that wait to be sent, in order."""

from __future__ import annotations

from collections import deque
from enum import Enum
from typing import NamedTuple

from .. import limits
from .run import Run

#: Log lines and progress beyond these are dropped. Starts and ends never are: without room the worker fetches no runs.
_CHATTER_EVENTS_MAX = 10_000
_CHATTER_BYTES_MAX = 8 << 20
_UNSENT_EVENTS_MAX = 50_000
_UNSENT_BYTES_MAX = 64 << 20
#: Well within the limit of one request, also with multi-byte characters.
_BATCH_CHARS_MAX = 6 << 20


class Kind(Enum):
    START = 0
    LOG = 1
    PROGRESS = 2
    END = 3


class Event(NamedTuple):
    run: Run
    kind: Kind
    text: str


class Outbox:
    def __init__(self) -> None:
        self._events = deque[Event]()
        self._chars = 0
        self._chatter = 0
        self._chatter_chars = 0

    def __len__(self) -> int:
        return len(self._events)

    @property
    def has_room(self) -> bool:
        return len(self._events) < _UNSENT_EVENTS_MAX and self._chars < _UNSENT_BYTES_MAX

    @property
    def has_room_for_chatter(self) -> bool:
        return self._chatter < _CHATTER_EVENTS_MAX and self._chatter_chars < _CHATTER_BYTES_MAX

    def push(self, event: Event) -> None:
        last = self._events[-1] if event.kind is Kind.PROGRESS and self._events else None
        if last is not None and last.kind is Kind.PROGRESS and last.run is event.run:
            # Of two progress events in a row only the later counts.
            self._count(self._events.pop(), -1)
        self._events.append(event)
        self._count(event, 1)

    def take(self) -> list[Event]:
        """Returns the next events: as many as one request may carry, and at least one if there is one."""
        if self._chars <= _BATCH_CHARS_MAX and len(self._events) <= limits.REPORT_EVENTS_MAX:
            whole, self._events = list(self._events), deque[Event]()
            self._chars = self._chatter = self._chatter_chars = 0
            return whole
        taken, chars = list[Event](), 0
        while self._events and len(taken) < limits.REPORT_EVENTS_MAX:
            chars += len(self._events[0].text)
            if taken and chars > _BATCH_CHARS_MAX:
                break
            event = self._events.popleft()
            self._count(event, -1)
            taken.append(event)
        return taken

    def _count(self, event: Event, sign: int) -> None:
        self._chars += sign * len(event.text)
        if event.kind is Kind.LOG or event.kind is Kind.PROGRESS:
            self._chatter += sign
            self._chatter_chars += sign * len(event.text)
