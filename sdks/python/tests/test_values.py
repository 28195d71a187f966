"""Durations, JSON, annotations: no server is needed here."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal, NewType, Optional, TypedDict
from uuid import UUID

import msgspec
import pydantic
import pytest

import convoke
from convoke import durations, identifiers, limits, options, schema, wire
from convoke.errors import InvalidArguments
from convoke.servers import Backoff, Server, Servers
from convoke.signature import Signature


class Colour(Enum):
    RED = "red"
    BLUE = "blue"


@dataclass
class Item:
    name: str
    count: int = 1
    parts: list[Item] = field(default_factory=list["Item"])


class Address(TypedDict):
    city: str


class Partial(TypedDict, total=False):
    street: str


class PydanticUser(pydantic.BaseModel):
    name: str
    age: int


class MsgspecUser(msgspec.Struct):
    name: str
    age: int


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("1h30m", "1h30m"),
        ("90m", "1h30m"),
        (0.25, "250ms"),
        (0, "0s"),
        ("0", "0s"),
        (timedelta(days=2), "2d"),
        (0.0001, "1ms"),
    ],
)
def test_durations_are_written_as_the_server_reads_them(given: Any, text: str) -> None:
    assert durations.text(given) == text


@pytest.mark.parametrize("given", ["", "5", "5 s", "-1s", "1m1h", "1x", -1, float("nan"), "9" * 30 + "d", 1e12])
def test_a_wrong_duration_is_refused(given: Any) -> None:
    with pytest.raises(ValueError):
        durations.text(given)


def test_a_text_is_cut_between_characters() -> None:
    assert limits.cut("short", 16) == "short"
    line = limits.cut("ü" * 100, 20)
    assert len(line.encode()) <= 20 and line.endswith("… (cut)")
    assert limits.cut("\ud800", 100) == "?"


def test_integers_of_any_size_are_kept() -> None:
    number = -(10**308) + 7
    assert wire.decode(wire.encode(number, "args", 400)) == number


@pytest.mark.parametrize("value", [float("nan"), float("inf"), object(), "\ud800", {"a": {1, object()}}])
def test_what_json_cannot_carry_is_refused(value: Any) -> None:
    with pytest.raises(InvalidArguments):
        wire.encode(value, "args", 1000)


def test_a_value_that_contains_itself_is_refused() -> None:
    value = list[Any]()
    value.append(value)
    with pytest.raises(InvalidArguments):
        wire.encode(value, "args", 1000)


def test_too_many_bytes_are_refused() -> None:
    wire.encode("ü" * 49, "args", 100)
    with pytest.raises(InvalidArguments, match="args: expected at most 100 bytes of JSON, got 102"):
        wire.encode("ü" * 50, "args", 100)


def test_rich_values_survive_the_way_there_and_back() -> None:
    at = datetime(2026, 1, 2, 3, 4, 5, 678_000, timezone.utc)
    values: list[tuple[Any, Any]] = [
        (Item, Item("a", 2, [Item("b")])),
        (datetime, at),
        (timedelta, timedelta(minutes=90)),
        (UUID, UUID(int=7)),
        (Decimal, Decimal("1.10")),
        (Colour, Colour.BLUE),
        (bytes, b"\x00\xff"),
        (set[int], {1, 2}),
        (tuple[int, str], (1, "a")),
        (tuple[int, ...], (1, 2, 3)),
        (dict[str, list[float]], {"a": [1.5, 2.0]}),
        (Optional[int], None),
        (PydanticUser, PydanticUser(name="a", age=1)),
        (MsgspecUser, MsgspecUser(name="a", age=1)),
        (Address, {"city": "Bonn"}),
        (Partial, {}),
        (Annotated[int, []], 3),
        (NewType("OrderId", int), 17),
        (Literal["a", 1], 1),
    ]
    for hint, value in values:
        assert schema.decoder(hint)(wire.decode(wire.encode(value, "v", 1000)), "v") == value


def test_times_are_read_with_any_number_of_digits() -> None:
    for text in ("2026-01-02T03:04:05Z", "2026-01-02T03:04:05.6Z", "2026-01-02T03:04:05.123456789+00:00"):
        assert schema.instant(text).replace(microsecond=0) == datetime(2026, 1, 2, 3, 4, 5, tzinfo=timezone.utc)


@pytest.mark.parametrize(
    ("hint", "value", "field"),
    [
        (int, True, "v"),
        (int, 1.0, "v"),
        (float, "1", "v"),
        (float, 2**53 + 1, "v"),
        (float, 10**400, "v"),
        (str, None, "v"),
        (Item, {"count": 1}, "v.name"),
        (Item, {"name": "a", "parts": [{"name": 1}]}, "v.parts[0].name"),
        (Item, [], "v"),
        (Address, {}, "v.city"),
        (Partial, {"street": 1}, "v.street"),
        (dict[str, int], {"a": "b"}, "v.a"),
        (Optional[Item], {"name": 1}, "v.name"),
        (Literal["a", 1], True, "v"),
        (Colour, "green", "v"),
        (tuple[int, int], [1], "v"),
        (datetime, "yesterday", "v"),
        (UUID, "17", "v"),
        (Decimal, "x", "v"),
        (PydanticUser, {"name": "a", "age": "x"}, "v.age"),
        (MsgspecUser, {"name": "a", "age": "x"}, "v.age"),
    ],
)
def test_a_mismatch_names_the_field(hint: Any, value: Any, field: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        schema.decoder(hint)(value, "v")
    assert caught.value.field == field


def test_an_annotation_that_cannot_be_checked_is_an_error_where_the_job_is_defined() -> None:
    def handler(connection: Signature) -> None: ...

    with pytest.raises(TypeError, match="Signature"):
        convoke.App().job()(handler)


def test_arguments_are_named_after_the_parameters() -> None:
    def handler(a: int, b: str = "x", *, c: bool = False) -> None: ...

    signature = Signature(handler)
    assert json.loads(signature.encode((1,), {"c": True})) == {"a": 1, "c": True}
    assert signature.decode({"a": 1, "c": True}) == {"a": 1, "c": True}
    for args in ({}, {"a": 1, "d": 2}, {"a": "1"}, [1]):
        with pytest.raises(InvalidArguments):
            signature.decode(args)
    with pytest.raises(TypeError):
        signature.encode((), {})
    with pytest.raises(TypeError):
        signature.encode((1,), {"typo": 2})


def test_a_single_model_is_the_arguments_themselves() -> None:
    def handler(context: convoke.Context, item: Item) -> None: ...

    signature = Signature(handler)
    assert signature.takes_context
    assert json.loads(signature.encode((Item("a"),), {})) == {"name": "a", "count": 1, "parts": []}
    assert signature.decode({"name": "a"}) == {"item": Item("a")}


def test_further_arguments_are_taken_by_a_parameter_for_the_rest() -> None:
    def handler(a: int, **rest: str) -> None: ...

    signature = Signature(handler)
    assert json.loads(signature.encode((1,), {"b": "x"})) == {"a": 1, "b": "x"}
    assert signature.decode({"a": 1, "b": "x"}) == {"a": 1, "b": "x"}
    with pytest.raises(InvalidArguments) as caught:
        signature.decode({"a": 1, "b": 2})
    assert caught.value.field == "b"


def test_options_have_the_names_of_the_server() -> None:
    policy: convoke.RetryPolicy = {"initial_delay": 1, "max_delay": "5m", "jitter": "none"}
    at = datetime(2026, 1, 1, tzinfo=timezone.utc)
    fields = options.to_fields(
        {"max_retries": 3, "unique_for": "1h", "retry_policy": policy, "run_at": at, "delay": None}
    )
    assert fields == {
        "maxRetries": 3,
        "uniqueFor": "1h",
        "retryPolicy": {"initialDelay": "1s", "maxDelay": "5m", "jitter": "none"},
        "runAt": "2026-01-01T00:00:00+00:00",
    }
    with pytest.raises(TypeError, match="'prio' is not an option"):
        options.to_fields({"prio": 1})
    with pytest.raises(ValueError, match="time zone"):
        options.to_fields({"run_at": datetime(2026, 1, 1)})


def test_options_may_be_given_with_the_arguments_unless_the_function_has_them() -> None:
    app = convoke.App()

    @app.job(queue="a", max_retries=1)
    def send(to: str) -> None: ...

    request: Any = send.request(to="x", delay="5m", max_retries=2)
    assert request.fields == {"queue": "a", "maxRetries": 2, "delay": "5m"}
    assert send.options(queue="b").request(to="x").fields == {"queue": "b", "maxRetries": 1}

    @app.job()
    def postpone(delay: int) -> None: ...

    assert json.loads(postpone.request(delay=3).args) == {"delay": 3}


def test_a_type_has_one_handler() -> None:
    app = convoke.App()
    app.job("t")(lambda: None)
    with pytest.raises(ValueError, match="two jobs of the type 't'"):
        app.job("t")(lambda: None)


def test_ids_are_versioned_and_differ() -> None:
    ids = {identifiers.job_id() for _ in range(1000)}
    assert len(ids) == 1000 and all(UUID(each).version == 7 for each in ids)


def test_servers_are_parsed_and_used_in_turn() -> None:
    servers = Servers("http://a:1/base, https://b,c:3", None)
    assert [str(Server.parse(url)) for url in ("http://a:1/base/", "https://b", "[::1]:3")] == [
        "http://a:1/base",
        "https://b:443",
        "http://[::1]:3",
    ]
    first = servers.current
    servers.move_on(first)
    servers.move_on(first)  # Another connection noticed the same failure.
    assert str(servers.current) == "https://b:443"
    for wrong in ("ftp://a", "http://", "http://user:secret@a", "redis://a"):
        with pytest.raises(ValueError):
            Servers(wrong, None)


def test_delays_grow_to_a_limit_and_all_servers_are_tried_first() -> None:
    backoff = Backoff(Servers("a,b,c", None))
    assert [backoff.next_delay() for _ in range(2)] == [0.01, 0.01]
    delays = [backoff.next_delay() for _ in range(20)]
    assert delays[0] <= 0.1 and max(delays) <= Backoff.MAX_S and min(delays[10:]) >= Backoff.MAX_S / 2
    backoff.reset()
    assert backoff.next_delay() == 0.01
