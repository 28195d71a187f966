"""Enqueues jobs in a transaction of your own, on the PostgreSQL database of the nodes.

The job exists if and only if the transaction commits. Nothing is committed here. The connection may be one of psycopg,
Django (``django.db.connection``) or SQLAlchemy (``Connection`` or ``Session``); ``enqueue_in_async`` takes those of
asyncpg, psycopg (``AsyncConnection``) and SQLAlchemy (``AsyncConnection`` or ``AsyncSession``).
"""

from __future__ import annotations

import importlib
from typing import Any, TypeVar

from .errors import ConvokeError
from .options import Request

R = TypeVar("R")

_FORMAT = "select convoke_enqueue(%s::text::jsonb)"
_NAMED = "select convoke_enqueue(cast(cast(:job as text) as jsonb))"
_NUMBERED = "select convoke_enqueue($1::text::jsonb)"


def enqueue_in(connection: Any, job: Request[R]) -> str:
    """Enqueues ``job.request(…)`` in the transaction of this connection. Returns the job's id."""
    body = job.body()
    if _is_sqlalchemy(connection):
        return str(connection.execute(_statement(), {"job": body}).scalar_one())
    if not hasattr(connection, "cursor"):
        raise TypeError(f"expected a connection of psycopg, Django or SQLAlchemy, got a {type(connection).__name__}")
    with connection.cursor() as cursor:
        cursor.execute(_FORMAT, (body,))
        return _first(cursor.fetchone())


async def enqueue_in_async(connection: Any, job: Request[R]) -> str:
    """The same for a connection of an event loop."""
    body = job.body()
    if _is_sqlalchemy(connection):
        return str((await connection.execute(_statement(), {"job": body})).scalar_one())
    if hasattr(connection, "fetchval"):
        return str(await connection.fetchval(_NUMBERED, body))
    if not hasattr(connection, "cursor"):
        raise TypeError(f"expected a connection of asyncpg, psycopg or SQLAlchemy, got a {type(connection).__name__}")
    async with connection.cursor() as cursor:
        await cursor.execute(_FORMAT, (body,))
        return _first(await cursor.fetchone())


def _is_sqlalchemy(connection: Any) -> bool:
    return any(kind.__module__.partition(".")[0] == "sqlalchemy" for kind in type(connection).__mro__)


def _statement() -> Any:
    return importlib.import_module("sqlalchemy").text(_NAMED)


def _first(row: Any) -> str:
    if row is None:
        raise ConvokeError("convoke_enqueue returned no id")
    # Rows may be tuples or mappings, by the row factory of the connection.
    return str(next(iter(row.values())) if hasattr(row, "values") else row[0])
