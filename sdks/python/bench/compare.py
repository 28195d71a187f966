"""Measures one worker process of Convoke beside Celery and Dramatiq: no-op jobs a second, memory, idle stop.

    pip install celery[redis] dramatiq[redis]
    CONVOKE_BIN=target/release/convoke python sdks/python/bench/compare.py

Jobs are enqueued first. The rate is measured from the first call of the handler to the last; that of Convoke, whose
jobs are durable in SQLite, until the server has recorded the last end. The number after a name is that of slots or
threads.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).parent


@dataclass
class Contender:
    name: str
    module: str
    command: list[str]
    environment: dict[str, str] = field(default_factory=dict[str, str])


def convoke(slots: int) -> list[str]:
    return ["-m", "convoke", "worker", "jobs_convoke:app", "--concurrency", str(slots), "--log-level", "warning"]


def celery(threads: int) -> list[str]:
    quiet = ["-l", "error", "--without-gossip", "--without-mingle", "--without-heartbeat"]
    return ["-m", "celery", "-A", "jobs_celery", "worker", "--pool", "threads", "-c", str(threads), *quiet]


def dramatiq(threads: int) -> list[str]:
    return ["-m", "dramatiq", "jobs_dramatiq", "--processes", "1", "--threads", str(threads)]


#: More fetched ahead than by default, which makes it faster.
PREFETCH = {"dramatiq_queue_prefetch": "1000"}

CONTENDERS = [
    Contender("Convoke, def, 8", "jobs_convoke", convoke(8)),
    Contender("Convoke, def, 100", "jobs_convoke", convoke(100)),
    Contender("Convoke, async, 100", "jobs_convoke", convoke(100), {"BENCH_KIND": "async"}),
    Contender("Celery, threads, 8", "jobs_celery", celery(8)),
    Contender("Dramatiq, 8", "jobs_dramatiq", dramatiq(8), PREFETCH),
    Contender("Dramatiq, 32", "jobs_dramatiq", dramatiq(32), PREFETCH),
]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    print(f"Python {sys.version.split()[0]}, {options.jobs} jobs, {os.cpu_count()} cores")
    print(f"{'one process':20} {'jobs/s':>8} {'CPU us/job':>11} {'idle MiB':>9} {'idle stop ms':>13}")
    for contender in CONTENDERS:
        if options.only.lower() in contender.name.lower():
            rounds = [measure(contender, options.jobs) for _ in range(options.rounds)]
            rate, cpu, memory, stop = (statistics.median(values) for values in zip(*rounds, strict=True))
            print(f"{contender.name:20} {rate:8.0f} {cpu * 1e6:11.0f} {memory:9.1f} {stop * 1000:13.0f}", flush=True)


def measure(contender: Contender, jobs: int) -> tuple[float, float, float, float]:
    directory = tempfile.mkdtemp(prefix="convoke-bench-")
    port = free_port()
    is_convoke = contender.module == "jobs_convoke"
    backend = start_convoke(directory, port) if is_convoke else start_redis(directory, port)
    url = f"http://127.0.0.1:{port}" if is_convoke else f"redis://127.0.0.1:{port}/0"
    result = Path(directory) / "rate"
    settings = {"BENCH_URL": url, "BENCH_JOBS": str(jobs), "BENCH_RESULT": str(result), **contender.environment}
    source = f"{HERE}{os.pathsep}{HERE.parent / 'src'}"
    environment = {**os.environ, **settings, "PYTHONPATH": source}
    try:
        fill = f"import {contender.module} as jobs; jobs.enqueue({jobs})"
        subprocess.run([sys.executable, "-c", fill], env=environment, check=True)
        with open(Path(directory) / "log", "wb") as log:
            worker = subprocess.Popen(
                [sys.executable, *contender.command], env=environment, cwd=HERE, stdout=log, stderr=log
            )
            wait_until(result.exists, lambda: (Path(directory) / "log").read_text())
            begin_s, end_s, cpu_s = map(float, result.read_text().split())
            if is_convoke:
                wait_until(lambda: recorded(url) >= jobs, lambda: "the ends are not recorded")
                end_s = time.monotonic()
            rate = (jobs - 1) / (end_s - begin_s)
            time.sleep(1.5)
            memory = tree_memory_mib(worker.pid)
            stopped_s = time.monotonic()
            worker.send_signal(signal.SIGTERM)
            worker.wait()
            return rate, cpu_s / jobs, memory, time.monotonic() - stopped_s
    finally:
        backend.kill()
        backend.wait()
        shutil.rmtree(directory, ignore_errors=True)


def start_convoke(directory: str, port: int) -> subprocess.Popen[bytes]:
    binary = os.path.abspath(os.environ.get("CONVOKE_BIN", "target/release/convoke"))
    command = [binary, "serve", "--http", f"127.0.0.1:{port}", "--store", "sqlite:jobs.db", "--shards", "off"]
    return start(command, directory, port)


def start_redis(directory: str, port: int) -> subprocess.Popen[bytes]:
    # The durability of a common installation: no append-only file. Convoke's jobs are on disk.
    return start(["redis-server", "--port", str(port), "--save", "", "--appendonly", "no"], directory, port)


def start(command: list[str], directory: str, port: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(command, cwd=directory, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    wait_until(lambda: can_connect(port), lambda: f"{command[0]} did not start")
    return process


def can_connect(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 0.5).close()
        return True
    except OSError:
        return False


def recorded(url: str) -> int:
    with urllib.request.urlopen(f"{url}/v1/queues") as response:
        queues = json.load(response)["queues"]
    return sum(queue["counts"]["completed"] for queue in queues)


def wait_until(is_so: Callable[[], bool], why: Callable[[], str]) -> None:
    end_s = time.monotonic() + 60
    while not is_so():
        if time.monotonic() > end_s:
            raise SystemExit(why())
        time.sleep(0.01)


def tree_memory_mib(pid: int) -> float:
    """Returns the resident memory of a process and its children: some workers need a parent or a helper."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    own = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmRSS"))
    return int(own.split()[1]) / 1024 + sum(tree_memory_mib(int(child)) for child in children)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


if __name__ == "__main__":
    main()
