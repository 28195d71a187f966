"""A worker and a client inside an asyncio service of your own."""

import asyncio

import convoke
from shop import Order, app, pack


async def main() -> None:
    worker = convoke.Worker(app, concurrency=100)
    working = asyncio.create_task(worker.serve())  # no signal handlers, no other event loop

    handle = await pack.enqueue_async(Order(17, ["pen", "ink"]))
    print(await handle.result(timeout="30s"))

    worker.stop()  # drains
    await working


asyncio.run(main())
