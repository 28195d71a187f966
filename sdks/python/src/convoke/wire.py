"""JSON, exactly: integers of any size are kept, and NaN is refused."""

from __future__ import annotations

import base64
import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from typing import Any
from uuid import UUID

from . import durations
from .errors import InvalidArguments


def _default(value: Any) -> Any:
    """Converts what the json module does not know. Dataclasses and models become objects, sets become lists."""
    if hasattr(value, "__dataclass_fields__") and not _is(value, type):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, (datetime, date, time)):
        return value.isoformat()
    if isinstance(value, timedelta):
        return durations.text(value)
    if isinstance(value, (UUID, Decimal)):
        return str(value)
    if isinstance(value, Enum):
        return value.value
    if _is(value, set, frozenset):
        return list(value)
    if _is(value, Mapping):
        return dict(value)
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    dump: Callable[..., Any] | None = getattr(value, "model_dump", None)  # Pydantic
    if dump is not None:
        return dump(mode="json")
    fields: tuple[str, ...] | None = getattr(value, "__struct_fields__", None)  # msgspec
    if fields is not None:
        return {name: getattr(value, name) for name in fields}
    raise TypeError(f"a value of the type {type(value).__name__} cannot be written as JSON")


_ENCODER = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_default)


def encode(value: Any, field: str, bytes_max: int) -> str:
    """Returns the JSON text of a value; raises ``InvalidArguments`` if there is none, or if it is too long."""
    try:
        text = _ENCODER.encode(value)
        size = len(text) if text.isascii() else len(text.encode("utf-8"))
    except UnicodeEncodeError:
        raise InvalidArguments(field, "expected text in Unicode, got a lone surrogate") from None
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArguments(field, str(error)) from None
    if size > bytes_max:
        raise InvalidArguments(field, f"expected at most {bytes_max} bytes of JSON, got {size}")
    return text


def decode(data: bytes | str) -> Any:
    """Parses JSON. The server accepts numbers of at most 309 digits, which Python always converts."""
    return json.loads(data)


def as_object(value: Any) -> dict[str, Any] | None:
    return value if _is(value, dict) else None


def as_list(value: Any) -> list[Any] | None:
    return value if _is(value, list) else None


def _is(value: Any, *kinds: type[Any]) -> bool:
    """``isinstance`` without the narrowing of type checkers, which makes the items of a container unknown."""
    return isinstance(value, kinds)
