"""How far to fetch ahead.

A slot that ends a run every few microseconds would idle for the length of a poll if no run were waiting for it. So a
worker fetches as many runs as its slots would end within a poll, estimated from the duration of recent runs. If runs
are long it fetches none ahead: another worker may have a free slot for them.
"""

from __future__ import annotations

#: About the round trip of a poll, with room to spare.
_HORIZON_S = 0.03
_PREFETCH_MAX = 1_000
_SHORTEST_S = 0.000_01


class Pace:
    def __init__(self) -> None:
        self._mean_s: float | None = None

    def ended(self, took_s: float) -> None:
        took_s = max(took_s, _SHORTEST_S)
        if self._mean_s is None:
            self._mean_s = took_s
            return
        # Rises fast and falls slowly: a run that was fetched too early waits, one fetched too late costs a poll.
        weight = 0.25 if took_s > self._mean_s else 0.0625
        self._mean_s += (took_s - self._mean_s) * weight

    def was_too_fast(self) -> None:
        """Records that a run that was fetched ahead found no slot in time."""
        self._mean_s = max(self._mean_s or 0.0, 1.0)

    def prefetch(self, concurrency: int) -> int:
        """Returns how many runs to have waiting beside those that run."""
        if self._mean_s is None:
            return 0
        return min(_PREFETCH_MAX, int(concurrency * _HORIZON_S / self._mean_s))
