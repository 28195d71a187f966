"""Turns annotations into checks: JSON values become the types that a handler declares, or an error names the field.

A decoder is made once for each annotation, when the job is defined, so a parameter that cannot be checked is an error
at import; the fields of a class are read at the first use. ``Any`` and missing annotations accept everything.
"""

from __future__ import annotations

import base64
import binascii
import collections.abc
import dataclasses
import inspect
import sys
import types
import typing
from collections.abc import Callable
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin
from uuid import UUID

from . import durations, wire
from .errors import InvalidArguments

#: Takes a JSON value and its path; returns the typed value or raises ``InvalidArguments``.
Decoder = Callable[[Any, str], Any]

_MISSING = object()


def decoder(hint: Any) -> Decoder:
    """Returns the decoder of an annotation; raises ``TypeError`` if there is none."""
    if hint is Any or hint is inspect.Parameter.empty or isinstance(hint, typing.TypeVar) or hint is object:
        return _anything
    if hint is None or hint is type(None):
        return _literal([None])
    origin = get_origin(hint)
    if origin is not None:
        return _generic(hint, origin, get_args(hint))
    supertype = getattr(hint, "__supertype__", None)  # NewType
    if supertype is not None:
        return decoder(supertype)
    if hint in _PLAIN:
        return _PLAIN[hint]
    if isinstance(hint, type):
        return _class(hint)
    raise TypeError(f"the annotation {hint!r} cannot be checked; use Any, a plain type, a dataclass or a TypedDict")


def is_model(hint: Any) -> bool:
    """Returns whether the annotation is a class whose fields are an object of JSON."""
    if typing.is_typeddict(hint):
        return True
    if not isinstance(hint, type):
        return False
    return _is_pydantic(hint) or _is_msgspec(hint) or hasattr(hint, "__dataclass_fields__")


def _mismatch(path: str, expected: str, value: Any) -> InvalidArguments:
    shown = repr(value)
    shown = shown if len(shown) <= 60 else f"a value of the type {type(value).__name__}"
    return InvalidArguments(path, f"expected {expected}, got {shown}")


def _anything(value: Any, path: str) -> Any:
    return value


def _plain(kind: type, expected: str) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        # The exact type: a bool is an int to Python, not to the caller.
        if type(value) is kind:
            return value
        raise _mismatch(path, expected, value)

    return decode


def _number(value: Any, path: str) -> float:
    if type(value) is float:
        return value
    if type(value) is int:
        try:
            number = float(value)
        except OverflowError:
            number = 0.5
        if number == value:
            return number
        raise _mismatch(path, "a number that a float represents exactly", value)
    raise _mismatch(path, "a number", value)


def _text(expected: str, convert: Callable[[str], Any]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        if type(value) is str:
            try:
                return convert(value)
            except (ValueError, InvalidOperation, binascii.Error):
                pass
        raise _mismatch(path, expected, value)

    return decode


def instant(text: str) -> datetime:
    """Parses RFC 3339. Python 3.10 knows neither ``Z`` nor more than six digits of a second."""
    text = text[:-1] + "+00:00" if text.endswith(("Z", "z")) else text
    head, dot, rest = text.partition(".")
    if dot:
        digits = len(rest) - len(rest.lstrip("0123456789"))
        text = f"{head}.{rest[:digits][:6]:0<6}{rest[digits:]}"
    return datetime.fromisoformat(text)


_PLAIN: dict[Any, Decoder] = {
    str: _plain(str, "a string"),
    int: _plain(int, "an integer"),
    bool: _plain(bool, "true or false"),
    float: _number,
    dict: _plain(dict, "an object"),
    list: _plain(list, "a list"),
    bytes: _text("bytes in base64", lambda text: base64.b64decode(text, validate=True)),
    datetime: _text("a time in RFC 3339", instant),
    date: _text("a date such as 2026-01-31", date.fromisoformat),
    time: _text("a time of day such as 09:30:00", time.fromisoformat),
    timedelta: _text("a duration such as 1h30m", lambda text: timedelta(milliseconds=durations.milliseconds(text))),
    UUID: _text("a UUID", UUID),
    Decimal: _text("a decimal number as a string", Decimal),
}


def _generic(hint: Any, origin: Any, args: tuple[Any, ...]) -> Decoder:
    if origin is Union or origin is types.UnionType:
        return _union([decoder(arg) for arg in args])
    if origin is Literal:
        return _literal(list(args))
    if origin is typing.Annotated or getattr(origin, "__name__", "") in ("Required", "NotRequired", "ReadOnly"):
        return decoder(args[0])
    if origin in (list, set, frozenset, collections.abc.Sequence, collections.abc.Iterable):
        make = origin if origin in (set, frozenset) else list
        return _items(decoder(args[0]), make)
    if origin is tuple:
        if len(args) == 2 and args[1] is Ellipsis:
            return _items(decoder(args[0]), tuple)
        return _tuple([decoder(arg) for arg in args])
    if origin in (dict, collections.abc.Mapping, collections.abc.MutableMapping):
        return _mapping(decoder(args[0]), decoder(args[1]))
    raise TypeError(f"the annotation {hint!r} cannot be checked")


def _class(kind: type) -> Decoder:
    if _is_pydantic(kind):
        return _pydantic(kind)
    if _is_msgspec(kind):
        return _msgspec(kind)
    if typing.is_typeddict(kind):
        return Fields(kind, lambda values: values, required=getattr(kind, "__required_keys__", frozenset()))
    if hasattr(kind, "__dataclass_fields__"):
        return Fields(kind, lambda values: kind(**values))
    if issubclass(kind, Enum):
        return _enum(kind)
    raise TypeError(f"the annotation {kind.__name__} cannot be checked; use a dataclass, a TypedDict or Any")


class Fields:
    """The decoder of a dataclass or a TypedDict. Fields that it does not know are ignored."""

    def __init__(
        self, kind: type, make: Callable[[dict[str, Any]], Any], required: frozenset[str] | None = None
    ) -> None:
        self._kind, self._make, self._required = kind, make, required
        # Made at the first use, because a class may contain itself.
        self._decoders: dict[str, tuple[Decoder, bool]] | None = None

    def _read(self) -> dict[str, tuple[Decoder, bool]]:
        hints = typing.get_type_hints(self._kind, include_extras=True)
        if self._required is not None:
            return {name: (decoder(hint), name in self._required) for name, hint in hints.items()}
        absent = dataclasses.MISSING
        return {
            field.name: (decoder(hints[field.name]), field.default is absent and field.default_factory is absent)
            for field in dataclasses.fields(self._kind)
            if field.init
        }

    def __call__(self, value: Any, path: str) -> Any:
        given = wire.as_object(value)
        if given is None:
            raise _mismatch(path, f"an object with the fields of {self._kind.__name__}", value)
        if self._decoders is None:
            self._decoders = self._read()
        values = dict[str, Any]()
        for name, (decode, is_required) in self._decoders.items():
            item = given.get(name, _MISSING)
            where = f"{path}.{name}" if path else name
            if item is not _MISSING:
                values[name] = decode(item, where)
            elif is_required:
                raise InvalidArguments(where, "is missing")
        try:
            return self._make(values)
        except Exception as error:  # What __post_init__ does not accept.
            raise InvalidArguments(path or self._kind.__name__, str(error) or repr(error)) from error


def _union(decoders: list[Decoder]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        errors = list[InvalidArguments]()
        for each in decoders:
            try:
                return each(value, path)
            except InvalidArguments as error:
                errors.append(error)
        # The deepest field is the one that the sender meant.
        raise max(errors, key=lambda error: len(error.field))

    return decode


def _literal(allowed: list[Any]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        for each in allowed:
            if value == each and type(value) is type(each):
                return each
        raise _mismatch(path, " or ".join("null" if each is None else repr(each) for each in allowed), value)

    return decode


def _enum(kind: type[Enum]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        try:
            return kind(value)
        except ValueError:
            raise _mismatch(path, " or ".join(repr(member.value) for member in kind), value) from None

    return decode


def _items(item: Decoder, make: Callable[[Any], Any]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        values = wire.as_list(value)
        if values is None:
            raise _mismatch(path, "a list", value)
        return make([item(each, f"{path}[{place}]") for place, each in enumerate(values)])

    return decode


def _tuple(items: list[Decoder]) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        values = wire.as_list(value)
        if values is None or len(values) != len(items):
            raise _mismatch(path, f"a list of {len(items)}", value)
        return tuple(items[place](each, f"{path}[{place}]") for place, each in enumerate(values))

    return decode


def _mapping(key: Decoder, item: Decoder) -> Decoder:
    def decode(value: Any, path: str) -> Any:
        values = wire.as_object(value)
        if values is None:
            raise _mismatch(path, "an object", value)
        return {key(name, path): item(each, f"{path}.{name}") for name, each in values.items()}

    return decode


def _is_pydantic(kind: type) -> bool:
    module: Any = sys.modules.get("pydantic")
    return module is not None and issubclass(kind, module.BaseModel)


def _is_msgspec(kind: type) -> bool:
    module: Any = sys.modules.get("msgspec")
    return module is not None and issubclass(kind, module.Struct)


def _pydantic(kind: Any) -> Decoder:
    module: Any = sys.modules["pydantic"]

    def decode(value: Any, path: str) -> Any:
        try:
            return kind.model_validate(value)
        except module.ValidationError as error:
            first = error.errors()[0]
            where = ".".join([path, *map(str, first["loc"])] if path else map(str, first["loc"]))
            raise InvalidArguments(where or path, first["msg"]) from None

    return decode


def _msgspec(kind: Any) -> Decoder:
    module: Any = sys.modules["msgspec"]

    def decode(value: Any, path: str) -> Any:
        try:
            return module.convert(value, kind)
        except module.ValidationError as error:
            # "Expected `int`, got `str` - at `$.count`"; the name of a missing field is in the message.
            message, _, where = str(error).partition(" - at `$")
            raise InvalidArguments((path + where.rstrip("`")).lstrip("."), message) from None

    return decode
