"""Durations as the server reads and writes them: ``250ms``, ``30s``, ``1h30m``."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import TypeAlias

#: A text such as ``"1h30m"``, a number of seconds, or a ``timedelta``.
Duration: TypeAlias = str | float | timedelta

_UNITS = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1))
_FORM = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m(?!s))?(?:(\d+)s)?(?:(\d+)ms)?")
_MS_MAX = 100 * 365 * 86_400_000


def milliseconds(duration: Duration) -> int:
    """Returns whole milliseconds, rounded up, so that no wait is shorter than asked for."""
    if isinstance(duration, str):
        total = _parse(duration)
    else:
        seconds = duration.total_seconds() if isinstance(duration, timedelta) else duration
        if not 0 <= seconds <= _MS_MAX / 1000:
            raise ValueError(f"expected a duration from 0 to 100 years, got {duration!r}")
        total = -int(-seconds * 1000 // 1)
    if total > _MS_MAX:
        raise ValueError(f"expected a duration of at most 100 years, got {duration!r}")
    return total


def seconds(duration: Duration) -> float:
    return milliseconds(duration) / 1000


def text(duration: Duration) -> str:
    """Returns the form that the server reads."""
    rest, parts = milliseconds(duration), list[str]()
    for unit, ms in _UNITS:
        count, rest = divmod(rest, ms)
        if count:
            parts.append(f"{count}{unit}")
    return "".join(parts) or "0s"


def _parse(duration: str) -> int:
    if duration == "0":
        return 0
    match = _FORM.fullmatch(duration)
    if not match or not duration or len(duration) > 64:
        raise ValueError(f'expected a duration such as "250ms", "30s" or "1h30m", got {duration!r}')
    return sum(int(count or 0) * ms for count, (_, ms) in zip(match.groups(), _UNITS, strict=True))
