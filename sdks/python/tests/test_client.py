"""The clients against a real server."""

from __future__ import annotations

import asyncio
import os
import socket
import threading
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

import pytest

import convoke
from conformance.server import Server, free_port


@dataclass
class Sum:
    total: int


def test_a_job_is_durable_typed_and_found(app: convoke.App, queue: str) -> None:
    @app.job("add", queue=queue)
    def add(a: int, b: int) -> int: ...

    handle = add.options(priority="high", tags=["t1"], correlation_id="c1").enqueue(1, b=2)
    job = handle.job()
    assert (job.type, job.queue, job.status, job.args, job.tags) == ("add", queue, "pending", {"a": 1, "b": 2}, ("t1",))
    assert [each.id for each in app.client.jobs(queue=queue)] == [handle.id]
    assert [each.id for each in app.client.jobs(queue=queue, status="completed")] == []
    assert handle.cancel("enough").error == "enough"
    with pytest.raises(convoke.NotCompleted, match="cancelled: enough"):
        handle.result()
    assert app.client.retry(handle.id).status == "pending"


def test_waiting_ends_in_time(app: convoke.App, queue: str) -> None:
    handle = app.client.enqueue("nobody", queue=queue)
    with pytest.raises(convoke.StillRunning):
        handle.wait(timeout="50ms")
    with pytest.raises(TimeoutError):
        handle.wait(timeout=0)


def test_a_unique_key_makes_one_job(app: convoke.App, queue: str) -> None:
    first, second = (app.client.enqueue("t", {}, queue=queue, unique_key=queue) for _ in range(2))
    assert (first.created, second.created) == (True, False) and first.id == second.id


def test_the_server_says_which_field_is_wrong(app: convoke.App) -> None:
    with pytest.raises(convoke.Rejected) as caught:
        app.client.enqueue("t", {}, max_retries=5000)
    assert caught.value.field == "jobs[0].maxRetries" and caught.value.status == 400
    with pytest.raises(convoke.Rejected) as caught:
        app.client.job("01990000-0000-7000-8000-000000000001")
    assert caught.value.code == "not_found"


def test_a_batch_is_bounded_before_it_is_sent(app: convoke.App, queue: str) -> None:
    requests = [convoke.Request.of("t", {"n": n}, {"queue": queue}) for n in range(100)]
    assert len({handle.id for handle in app.enqueue_batch(requests)}) == 100
    for wrong in ([], requests * 101):
        with pytest.raises(convoke.InvalidArguments):
            app.enqueue_batch(wrong)
    huge = convoke.Request.of("t", "x" * 1_000_000, {})
    with pytest.raises(convoke.InvalidArguments, match="bytes in a batch"):
        app.enqueue_batch([huge] * 40)


def test_schedules(app: convoke.App, queue: str) -> None:
    @app.job("report", queue=queue)
    def report(day: str) -> None: ...

    name = f"nightly-{queue}"
    made = report.schedule(name, convoke.Cron("0 3 * * *", tz="Europe/Berlin"), "today")
    assert (made.cron, made.raw["tz"], made.raw["args"]) == ("0 3 * * *", "Europe/Berlin", {"day": "today"})
    assert name in [each.name for each in app.client.schedules()]
    assert app.client.pause_schedule(name).paused and not app.client.resume_schedule(name).paused
    job = app.client.trigger_schedule(name)
    assert (job.schedule, job.args) == (name, {"day": "today"})
    assert report.schedule(name, convoke.Every(3600), day="now").every == "1h"
    app.client.remove_schedule(name)
    with pytest.raises(convoke.Rejected):
        app.client.schedule(name)
    with pytest.raises(TypeError, match="delay"):
        report.options(delay="5m").schedule(name, convoke.Every(1), "today")


def test_a_server_that_is_away_is_an_error_in_time() -> None:
    client = convoke.Client(f"http://127.0.0.1:{free_port()}", retry_for="200ms")
    with pytest.raises(convoke.Unavailable, match="did not respond to POST /v1/jobs/batch"):
        client.enqueue("t")


def test_a_client_moves_to_a_server_that_responds(shared_server: Server, queue: str) -> None:
    client = convoke.Client([f"http://127.0.0.1:{free_port()}", shared_server.url])
    assert client.enqueue("t", queue=queue).created


def test_a_restart_of_the_server_is_not_noticed(own_server: Server) -> None:
    client = convoke.Client(own_server.url)
    handle = client.enqueue("t")
    own_server.kill()
    starting = threading.Timer(0.3, own_server.start)
    starting.start()
    assert handle.job().status == "pending"  # The connection that was kept open is dead.
    starting.join()


def test_a_client_is_shared_by_threads(app: convoke.App, queue: str) -> None:
    ids = list[str]()
    threads = [
        threading.Thread(target=lambda: ids.extend(app.client.enqueue("t", queue=queue).id for _ in range(20)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(ids)) == 160


def test_a_fork_uses_connections_of_its_own(app: convoke.App, queue: str) -> None:
    handle = app.client.enqueue("t", queue=queue)
    pid = os.fork()
    if pid == 0:
        try:
            for _ in range(50):
                handle.job()
            os._exit(0)
        finally:
            os._exit(1)
    for _ in range(50):
        assert handle.job().id == handle.id
    assert os.waitpid(pid, 0)[1] == 0


def test_the_async_client_does_the_same(app: convoke.App, queue: str) -> None:
    @app.job("add-async", queue=queue)
    async def add(a: int, b: int) -> Sum: ...

    async def use() -> None:
        handle = await add.options(tags=["t"]).enqueue_async(1, 2)
        assert (await handle.job()).args == {"a": 1, "b": 2}
        with pytest.raises(convoke.StillRunning):
            await handle.wait("50ms")
        many = await asyncio.gather(*(app.async_client.enqueue("t", queue=queue) for _ in range(50)))
        assert len({each.id for each in many}) == 50
        assert len([job async for job in app.async_client.jobs(queue=queue)]) == 51
        assert (await handle.cancel()).status == "cancelled"
        with pytest.raises(convoke.NotCompleted):
            await handle.result()
        with pytest.raises(convoke.Rejected):
            await app.async_client.remove_schedule("none")
        name = f"async-{queue}"
        await app.async_client.put_schedule(name, convoke.Every("1h"), add.request(1, 2))
        assert (await app.async_client.schedule(name)).every == "1h"
        await app.async_client.remove_schedule(name)
        async with convoke.AsyncClient(f"http://127.0.0.1:{free_port()}", retry_for="100ms") as away:
            with pytest.raises(convoke.Unavailable):
                await away.job("x")

    asyncio.run(use())


def test_a_cancelled_request_does_not_disturb_the_next(app: convoke.App, queue: str) -> None:
    async def use() -> None:
        client = app.async_client
        first, second = [await client.enqueue("t", {"n": n}, queue=queue) for n in range(2)]
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(first.wait(), 0.1)
        assert (await second.job()).args == {"n": 1}

    asyncio.run(use())


Respond = Callable[[socket.socket], None]


def _stub(respond: Respond) -> str:
    """A server that responds to every connection in its own way."""
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                connection.recv(65536)
                respond(connection)

    threading.Thread(target=serve, daemon=True).start()
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def _drains(connection: socket.socket) -> None:
    body = b'{"error":{"code":"unavailable","message":"the node drains","field":null}}'
    connection.sendall(b"HTTP/1.1 503 X\r\nretry-after: 1\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body))


def _floods(connection: socket.socket) -> None:
    connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{")


def _babbles(connection: socket.socket) -> None:
    connection.sendall(b"x" * 200_000)


def _breaks_off(connection: socket.socket) -> None:
    connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{"jobs":')


@pytest.mark.parametrize("respond", [_drains, _floods, _babbles, _breaks_off])
def test_a_server_that_drains_or_misbehaves_is_left_for_the_next(
    respond: Respond, shared_server: Server, queue: str
) -> None:
    urls = [_stub(respond), shared_server.url]
    assert convoke.Client(urls).enqueue("t", queue=queue).created

    async def use() -> None:
        assert (await convoke.AsyncClient(urls).enqueue("t", queue=queue)).created

    asyncio.run(use())


def test_a_response_of_another_program_is_an_error() -> None:
    url = _stub(lambda connection: connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n<html>"))
    with pytest.raises(convoke.ConvokeError, match="is not one of Convoke"):
        convoke.Client(url, retry_for=0).schedules()


def test_a_body_in_chunks_is_read() -> None:
    def respond(connection: socket.socket) -> None:
        chunks = b'd\r\n{"schedules":\r\n3\r\n[]}\r\n0\r\n\r\n'
        connection.sendall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunks)

    url = _stub(respond)
    assert convoke.Client(url).schedules() == []

    async def use() -> Any:
        return await convoke.AsyncClient(url).schedules()

    assert asyncio.run(use()) == []


def test_the_token_is_sent(queue: str) -> None:
    seen = list[bytes]()

    def respond(connection: socket.socket) -> None:
        _drains(connection)

    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        while True:
            connection, _ = listener.accept()
            with connection:
                seen.append(connection.recv(65536))
                respond(connection)

    threading.Thread(target=serve, daemon=True).start()
    url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    with pytest.raises(convoke.Unavailable):
        convoke.Client(url, token="secret-1", retry_for=0).schedules()
    use: Awaitable[Any] = convoke.AsyncClient(url, token="secret-2", retry_for=0).schedules()

    async def run() -> None:
        with pytest.raises(convoke.Unavailable):
            await use

    asyncio.run(run())
    assert b"Bearer secret-1" in seen[0] and b"Bearer secret-2" in seen[-1]
