"""Reads the status of a response: the body of a success, or the error by what the caller does next."""

from __future__ import annotations

import json
from typing import Any

from .errors import Rejected, Unavailable

#: The server responds to these as it will to the same request a little later.
_TRANSIENT = frozenset((408, 429, 500, 502, 503, 504))


def read(status: int, body: bytes) -> bytes:
    if 200 <= status < 300:
        return body
    code, message, field = _error(body)
    message = message or f"the server responded with the status {status}"
    if status in _TRANSIENT:
        raise Unavailable(f"{message} (status {status})")
    raise Rejected(status, code, message, field)


def _error(body: bytes) -> tuple[str, str, str | None]:
    """Reads ``{"error": {"code", "message", "field"}}``. A proxy in between may respond with anything else."""
    try:
        error: Any = json.loads(body)["error"]
        return str(error["code"]), str(error["message"]), error.get("field")
    except (ValueError, KeyError, TypeError, AttributeError):
        return "unknown", body[:200].decode("utf-8", "replace"), None
