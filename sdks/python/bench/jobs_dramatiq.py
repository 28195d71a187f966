"""The no-op job for Dramatiq, with a Redis broker."""

import os

import dramatiq
from dramatiq.brokers.redis import RedisBroker

from tally import count

dramatiq.set_broker(RedisBroker(url=os.environ["BENCH_URL"]))


@dramatiq.actor
def noop() -> None:
    count()


def enqueue(number: int) -> None:
    for _ in range(number):
        noop.send()
