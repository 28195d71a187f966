"""Jobs of a shop. Start a server, then: python -m convoke worker shop:app"""

import asyncio
import logging
from dataclasses import dataclass

import convoke

app = convoke.App()  # http://127.0.0.1:3000, or CONVOKE_SERVER
log = logging.getLogger(__name__)


@dataclass
class Order:
    id: int
    items: list[str]


@app.job("email.send", queue="mail", max_retries=5, timeout="30s")
def send(to: str, subject: str = "Your order") -> int:
    log.info("sending %r to %s", subject, to)  # also in the job's log
    return 250


@app.job("order.pack", queue="orders")
async def pack(run: convoke.Context, order: Order) -> list[str]:
    for place, item in enumerate(order.items):
        run.progress(100 * place // len(order.items), item)
        await asyncio.sleep(0.01)
    return sorted(order.items)


@app.job("card.charge", queue="orders", max_retries=3)
def charge(order_id: int, cents: int) -> str:
    if cents <= 0:
        raise convoke.Permanent(f"order {order_id} has nothing to charge")  # another attempt cannot succeed
    if convoke.current_run().attempt == 1:
        raise convoke.Retry("the bank is busy", after="100ms")  # the next attempt starts no earlier
    return f"receipt-{order_id}"
