"""What type checkers must know of jobs, and what they must refuse. Checked by mypy and pyright, and not run."""

from typing import TYPE_CHECKING

import convoke

if TYPE_CHECKING:
    from typing_extensions import assert_type

    app = convoke.App()

    @app.job("a", queue="q", timeout="30s")
    def plain(to: str, count: int = 1) -> int:
        return count

    @app.job()
    def with_run(run: convoke.Context, to: str) -> None: ...

    @app.job()
    async def coroutine(to: str) -> list[str]:
        return [to]

    @app.job()
    async def coroutine_with_run(run: convoke.Context, to: str) -> bytes:
        return b""

    assert_type(plain.enqueue("x", count=2), convoke.Handle[int])
    assert_type(plain.enqueue(to="x").result(), int)
    assert_type(plain("x"), int)
    assert_type(with_run.options(delay="5m").enqueue("x"), convoke.Handle[None])
    assert_type(coroutine.enqueue("x"), convoke.Handle[list[str]])
    assert_type(coroutine_with_run.request(to="x"), convoke.Request[bytes])
    plain.schedule("nightly", convoke.Every("1h"), "x", count=1)
    app.enqueue_batch([plain.request("x"), plain.request("y")])

    async def use() -> None:
        assert_type(await coroutine("x"), list[str])
        assert_type(await coroutine.enqueue_async("x"), convoke.AsyncHandle[list[str]])
        assert_type(await (await coroutine_with_run.enqueue_async("x")).result(), bytes)

    plain.enqueue(too="x")  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    plain.enqueue(17)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    plain.enqueue()  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    plain.options(prio=1)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
    plain.options(priority="urgent")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with_run.enqueue(1)  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    app.job("a", retries=3)  # type: ignore[call-arg] # pyright: ignore[reportCallIssue]
