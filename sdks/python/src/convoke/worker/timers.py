"""What must happen at a certain time to a run: its start is reported, its time is up, its retry is due."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable

from .run import Run

Action = Callable[[Run], None]

_COMPACT_AT = 1_000


class Timers:
    """Actions by time. An action of a run that is over is not needed any more, and is dropped in time."""

    def __init__(self) -> None:
        self._heap = list[tuple[float, int, Run, Action]]()
        self._order = itertools.count()
        self._compact_at = _COMPACT_AT

    def push(self, at_s: float, run: Run, action: Action) -> bool:
        """Adds an action. Returns whether it is now the first: whoever waits must wait shorter."""
        entry = (at_s, next(self._order), run, action)
        heapq.heappush(self._heap, entry)
        if len(self._heap) > self._compact_at:
            self._heap = [each for each in self._heap if not each[2].is_over]
            heapq.heapify(self._heap)
            self._compact_at = max(_COMPACT_AT, 2 * len(self._heap))
        return bool(self._heap) and self._heap[0] is entry

    def pop_due(self, now_s: float) -> list[tuple[Run, Action]]:
        due = list[tuple[Run, Action]]()
        while self._heap and self._heap[0][0] <= now_s:
            _, _, run, action = heapq.heappop(self._heap)
            if not run.is_over:
                due.append((run, action))
        return due

    def delay_s(self, now_s: float) -> float | None:
        """Returns how long until the next action; ``None`` if there is none."""
        return max(0.0, self._heap[0][0] - now_s) if self._heap else None
