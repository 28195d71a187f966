"""The arguments of a handler: how a call becomes JSON, and how JSON becomes a call."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Any

from . import limits, schema, wire
from .context import Context
from .errors import InvalidArguments


class Signature:
    """The parameters of a function.

    A function of one parameter whose type is a model (a dataclass, a TypedDict, a Pydantic or msgspec class) takes the
    fields of the model as the job's arguments. Otherwise the arguments are an object with one field a parameter, and
    ``**rest`` takes those that have none.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        name = function.__qualname__
        try:
            hints = typing.get_type_hints(function, include_extras=True)
        except NameError as error:
            raise TypeError(f"an annotation of {name} cannot be read: {error}") from None
        parameters = list(inspect.signature(function).parameters.values())
        self.takes_context = bool(parameters) and hints.get(parameters[0].name) is Context
        parameters = parameters[1:] if self.takes_context else parameters
        self._bind = inspect.Signature(parameters).bind
        rest = parameters.pop() if parameters and parameters[-1].kind is inspect.Parameter.VAR_KEYWORD else None
        self._rest = rest.name if rest else None
        self._decode_rest = schema.decoder(hints.get(rest.name, Any)) if rest else None
        for parameter in parameters:
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.POSITIONAL_ONLY):
                raise TypeError(f"{name}: expected parameters with names, got {parameter}")
        self._decoders = {each.name: schema.decoder(hints.get(each.name, Any)) for each in parameters}
        self._required = {each.name for each in parameters if each.default is each.empty}
        is_whole = len(parameters) == 1 and not rest and schema.is_model(hints.get(parameters[0].name))
        self._whole = parameters[0].name if is_whole else None
        self.names = frozenset(self._decoders)
        self.decode_result = schema.decoder(hints.get("return", Any)) if _is_checkable(hints) else _unchecked

    def encode(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Returns the JSON text of a call's arguments. A wrong name or a missing argument is a ``TypeError``."""
        values: dict[str, Any] = self._bind(*args, **kwargs).arguments
        value: Any = values[self._whole] if self._whole in values else values
        if self._rest in values:
            value = {**values, **values[self._rest]}
            del value[self._rest]
        return wire.encode(value, "args", limits.ARGS_BYTES_MAX)

    def decode(self, args: Any) -> dict[str, Any]:
        """Returns the keyword arguments of a run; raises ``InvalidArguments`` with the name of the field."""
        try:
            return self._decode(args)
        except InvalidArguments:
            raise
        except Exception as error:  # Of a class of the handler, such as an Enum.
            raise InvalidArguments("args", repr(error)) from error

    def _decode(self, args: Any) -> dict[str, Any]:
        if self._whole is not None:
            return {self._whole: self._decoders[self._whole](args, "")}
        if args is None and not self._required:
            return {}
        given = wire.as_object(args)
        if given is None:
            raise InvalidArguments("args", f"expected an object, got a value of the type {type(args).__name__}")
        for name in self._required:
            if name not in given:
                raise InvalidArguments(name, "is missing")
        values = dict[str, Any]()
        for name, value in given.items():
            decode = self._decoders.get(name, self._decode_rest)
            if decode is None:
                raise InvalidArguments(name, "is not an argument of this job")
            values[name] = decode(value, name)
        return values


def _unchecked(value: Any, path: str) -> Any:
    return value


def _is_checkable(hints: dict[str, Any]) -> bool:
    """A return type that JSON has no form for matters only to those who wait for the result: they get it as it is."""
    try:
        schema.decoder(hints.get("return", Any))
    except TypeError:
        return False
    return True
