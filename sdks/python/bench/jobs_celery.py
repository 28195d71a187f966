"""The no-op job for Celery, with a Redis broker and without a result backend."""

import os

from celery import Celery  # type: ignore[import-untyped,unused-ignore]

from tally import count

app = Celery("bench", broker=os.environ["BENCH_URL"])
app.conf.task_ignore_result = True
app.conf.worker_prefetch_multiplier = 128


@app.task(name="noop")
def noop() -> None:
    count()


def enqueue(number: int) -> None:
    with app.producer_pool.acquire() as producer:
        for _ in range(number):
            noop.apply_async(producer=producer)
