"""Jobs in a transaction of one's own, on a real PostgreSQL, through every kind of connection."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import asyncpg  # pyright: ignore[reportMissingTypeStubs]
import django
import psycopg
import psycopg.rows
import pytest
import sqlalchemy
import sqlalchemy.ext.asyncio
import sqlalchemy.orm
from django.conf import settings

import convoke
from conformance.postgres import Postgres
from conformance.server import Server
from conftest import binary


class Database(Postgres):
    """A PostgreSQL that is the store of a server, and a client of that server."""

    client: convoke.Client


@pytest.fixture(scope="module")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Database]:
    postgres = Database()
    server = Server(binary(), str(tmp_path_factory.mktemp("server")), store=postgres.url("postgres"))
    try:
        server.start()  # It makes the tables and functions.
        postgres.client = convoke.Client(server.url)
        yield postgres
    finally:
        server.kill()
        postgres.stop()


app = convoke.App()


@app.job("order.confirm", queue="mail", max_retries=7)
def confirm(order: int, note: str) -> None: ...


def _check(postgres: Database, committed: str, rolled_back: str) -> None:
    job = postgres.client.job(committed)
    assert (job.type, job.queue, job.max_retries) == ("order.confirm", "mail", 7)
    assert job.args == {"order": 2**53 + 1, "note": "Grüße %s $1 :x"}
    with pytest.raises(convoke.Rejected) as caught:
        postgres.client.job(rolled_back)
    assert caught.value.status == 404


def _request() -> convoke.Request[None]:
    return confirm.request(2**53 + 1, note="Grüße %s $1 :x")


@pytest.mark.parametrize("rows", [psycopg.rows.tuple_row, psycopg.rows.dict_row])
def test_psycopg(postgres: Database, rows: Any) -> None:
    with psycopg.connect(postgres.url(), row_factory=rows) as connection:
        committed = convoke.enqueue_in(connection, _request())
        connection.commit()
        rolled_back = convoke.enqueue_in(connection, _request())
        connection.rollback()
    _check(postgres, committed, rolled_back)


def test_psycopg_async(postgres: Database) -> None:
    async def use() -> tuple[str, str]:
        async with await psycopg.AsyncConnection.connect(postgres.url()) as connection:
            committed = await convoke.enqueue_in_async(connection, _request())
            await connection.commit()
            rolled_back = await convoke.enqueue_in_async(connection, _request())
            await connection.rollback()
            return committed, rolled_back

    _check(postgres, *asyncio.run(use()))


def test_asyncpg(postgres: Database) -> None:
    async def use() -> tuple[str, str]:
        connection: Any = await asyncpg.connect(postgres.url())  # pyright: ignore[reportUnknownMemberType]
        async with connection.transaction():
            committed = await convoke.enqueue_in_async(connection, _request())
        transaction = connection.transaction()
        await transaction.start()
        rolled_back = await convoke.enqueue_in_async(connection, _request())
        await transaction.rollback()
        await connection.close()
        return committed, rolled_back

    _check(postgres, *asyncio.run(use()))


def test_sqlalchemy(postgres: Database) -> None:
    engine = sqlalchemy.create_engine(postgres.url("postgresql+psycopg"))
    with engine.begin() as connection:
        committed = convoke.enqueue_in(connection, _request())
    with sqlalchemy.orm.Session(engine) as session:
        rolled_back = convoke.enqueue_in(session, _request())
        session.rollback()
    engine.dispose()
    _check(postgres, committed, rolled_back)


def test_sqlalchemy_async(postgres: Database) -> None:
    async def use() -> tuple[str, str]:
        engine = sqlalchemy.ext.asyncio.create_async_engine(postgres.url("postgresql+asyncpg"))
        async with engine.begin() as connection:
            committed = await convoke.enqueue_in_async(connection, _request())
        async with sqlalchemy.ext.asyncio.AsyncSession(engine) as session:
            rolled_back = await convoke.enqueue_in_async(session, _request())
            await session.rollback()
        await engine.dispose()
        return committed, rolled_back

    _check(postgres, *asyncio.run(use()))


def test_django(postgres: Database) -> None:
    database = {"ENGINE": "django.db.backends.postgresql", "HOST": "127.0.0.1", "PORT": postgres.port}
    settings.configure(DATABASES={"default": {**database, "USER": "postgres", "NAME": "postgres"}})
    django.setup()
    from django.db import connection, transaction

    with transaction.atomic():
        committed = convoke.enqueue_in(connection, _request())
    with transaction.atomic():
        rolled_back = convoke.enqueue_in(connection, _request())
        transaction.set_rollback(True)
    connection.close()
    _check(postgres, committed, rolled_back)


def test_the_example(postgres: Database) -> None:
    example = Path(__file__).parents[1] / "examples/transaction.py"
    environment = {**os.environ, "PYTHONPATH": str(example.parents[1] / "src"), "DATABASE_URL": postgres.url()}
    command = [sys.executable, str(example)]
    output = subprocess.run(command, check=True, capture_output=True, text=True, env=environment).stdout
    assert postgres.client.job(output.strip()).args == {"to": "ada@example.org"}


def test_another_kind_of_connection_is_refused() -> None:
    with pytest.raises(TypeError, match="expected a connection of psycopg, Django or SQLAlchemy"):
        convoke.enqueue_in(object(), _request())
    with pytest.raises(TypeError, match="expected a connection of asyncpg, psycopg or SQLAlchemy"):
        asyncio.run(convoke.enqueue_in_async(object(), _request()))


def test_the_package_needs_none_of_them() -> None:
    names = ("psycopg", "asyncpg", "sqlalchemy", "django", "pydantic", "msgspec")
    code = f"import convoke; print([name for name in {names} if name in sys.modules])"
    source = str(Path(__file__).parents[1] / "src")
    command = [sys.executable, "-I", "-c", f"import sys; sys.path.insert(0, {source!r}); {code}"]
    assert subprocess.run(command, check=True, capture_output=True, text=True).stdout == "[]\n"
