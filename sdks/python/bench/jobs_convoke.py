"""The no-op job for Convoke."""

import os

import convoke
from tally import count

app = convoke.App(os.environ["BENCH_URL"])


@app.job("noop", queue="bench")
def noop() -> None:
    count()


@app.job("noop-async", queue="bench")
async def noop_async() -> None:
    count()


def enqueue(number: int) -> None:
    job = noop_async if os.environ.get("BENCH_KIND") == "async" else noop
    for start in range(0, number, 5_000):
        app.enqueue_batch([job.request() for _ in range(min(5_000, number - start))])
