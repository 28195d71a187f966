"""How workers start, stop and survive: signals, processes, several servers."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import convoke
from conformance.server import Server, free_port
from conftest import Running

Start = Callable[[convoke.Worker], Running]

JOBS = """
import asyncio, logging, os, time
import convoke

app = convoke.App()

@app.job("quick", queue="shop")
def quick(n: int) -> int:
    return n + 1

@app.job("pid", queue="shop")
def pid() -> int:
    time.sleep(0.05)
    return os.getpid()

@app.job("long", queue="shop", max_retries=0)
def long(seconds: float) -> str:
    time.sleep(seconds)
    return "finished"

@app.job("blocking", queue="shop", max_retries=0)
async def blocking(seconds: float) -> str:
    time.sleep(seconds)
    return "finished"

held = logging.StreamHandler()
logging.getLogger().addHandler(held)

@app.job("holding", queue="shop", max_retries=0)
async def holding(seconds: float) -> str:
    held.acquire()  # As a handler does that waits for its disk or its network.
    try:
        time.sleep(seconds)
    finally:
        held.release()
    return "finished"

@app.job("dies", queue="shop", max_retries=0)
def dies() -> None:
    os._exit(9)
"""


class Command:
    def __init__(self, directory: Path, url: str, *arguments: str) -> None:
        (directory / "shop.py").write_text(JOBS)
        source = str(Path(__file__).parents[1] / "src")
        environment = {**os.environ, "PYTHONPATH": source, "CONVOKE_SERVER": url}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "convoke", "worker", "shop:app", *arguments],
            cwd=directory,
            env=environment,
            stderr=subprocess.PIPE,
            text=True,
        )

    def signal(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def end(self) -> tuple[int, str]:
        _, errors = self.process.communicate(timeout=30)
        return self.process.returncode, errors


@pytest.fixture
def command(tmp_path: Path, own_server: Server) -> Iterator[Callable[..., Command]]:
    commands = list[Command]()

    def start(*arguments: str) -> Command:
        commands.append(Command(tmp_path, own_server.url, *arguments))
        return commands[-1]

    yield start
    for each in commands:
        each.process.kill()
        each.process.communicate()


def wait_for_status(client: convoke.Client, job_id: str, status: str) -> None:
    end_s = time.monotonic() + 20
    while client.job(job_id).status != status:
        assert time.monotonic() < end_s, f"{job_id} is not {status} but {client.job(job_id).status}"
        time.sleep(0.02)


def test_an_idle_worker_leaves_at_once(app: convoke.App, queue: str, start: Start, shared_server: Server) -> None:
    @app.job("idle", queue=queue)
    def idle() -> int:
        return 1

    running = start(convoke.Worker(app, drain="1h"))
    assert idle.enqueue().result("10s") == 1
    running.stop(5)  # It polls for 20 s, and would drain for an hour.
    assert running.error is None
    time.sleep(0.3)  # For a thread that would register it again.
    assert running.worker.id not in str(shared_server.get("/v1/workers"))


def test_a_worker_waits_for_its_server_and_can_be_stopped_meanwhile(start: Start) -> None:
    app = convoke.App(f"http://127.0.0.1:{free_port()}")
    app.job("t")(lambda: None)
    running = start(convoke.Worker(app))
    time.sleep(0.3)
    running.stop(6)
    assert running.error is None


def test_a_registration_that_is_rejected_ends_the_worker(shared_server: Server, start: Start) -> None:
    app = convoke.App(shared_server.url)
    app.job("t", queue="no\0queue")(lambda: None)
    running = start(convoke.Worker(app))
    running.join()
    assert isinstance(running.error, convoke.Rejected) and running.error.status == 400


def test_a_worker_that_was_stopped_before_it_started_ends(app: convoke.App, queue: str, start: Start) -> None:
    app.job("t", queue=queue)(lambda: None)
    worker = convoke.Worker(app)
    worker.stop()
    start(worker).join(5)


def test_a_bug_in_a_thread_of_the_worker_ends_it(
    app: convoke.App, queue: str, start: Start, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(table: object) -> None:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr("convoke.worker.run_table.RunTable.in_hand", fail)
    app.job("t", queue=queue)(lambda: None)
    running = start(convoke.Worker(app))
    running.join()
    assert isinstance(running.error, ZeroDivisionError)


def test_wrong_settings_are_refused(app: convoke.App) -> None:
    with pytest.raises(ValueError, match="queues"):
        convoke.Worker(app)
    app.job("t")(lambda: None)
    for concurrency in (0, 100_001):
        with pytest.raises(ValueError, match="concurrency"):
            convoke.Worker(app, concurrency=concurrency)


def test_serve_works_in_a_running_loop_and_sets_no_other(app: convoke.App, queue: str) -> None:
    @app.job("served", queue=queue)
    async def served() -> int:
        return id(asyncio.get_running_loop())

    async def main() -> None:
        worker = convoke.Worker(app)
        task = asyncio.create_task(worker.serve())
        handle = await served.enqueue_async()
        assert await handle.result("10s") == id(asyncio.get_running_loop())
        with pytest.raises(RuntimeError, match="runs already"):
            await worker.serve()
        worker.stop()
        await task

    before = signal.getsignal(signal.SIGTERM)
    asyncio.run(main())
    assert signal.getsignal(signal.SIGTERM) is before


def test_run_leaves_no_loop_and_no_signal_handler_behind(app: convoke.App, queue: str) -> None:
    app.job("t", queue=queue)(lambda: None)
    worker, seen = convoke.Worker(app), list[object]()

    def stop() -> None:
        seen.append(signal.getsignal(signal.SIGTERM))
        worker.stop()

    before = signal.getsignal(signal.SIGTERM)
    threading.Timer(0.2, stop).start()
    worker.run()
    assert seen[0] is not before and signal.getsignal(signal.SIGTERM) is before
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()


def test_cancelling_serve_releases_what_runs(app: convoke.App, queue: str) -> None:
    @app.job("endless", queue=queue, max_retries=0)
    async def endless() -> None:
        await asyncio.sleep(3600)

    async def main() -> None:
        task = asyncio.create_task(convoke.Worker(app).serve())
        handle = await endless.enqueue_async()
        while (await handle.job()).status != "running":
            await asyncio.sleep(0.01)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        job = await handle.job()
        assert (job.status, job.attempt) == ("pending", 0)

    asyncio.run(main())


def test_the_command_finishes_on_sigterm(own_server: Server, command: Callable[..., Command]) -> None:
    client = convoke.Client(own_server.url)
    worker = command("--concurrency", "2")
    assert client.enqueue("quick", {"n": 1}, queue="shop").result("20s") == 2
    job = client.enqueue("long", {"seconds": 1}, queue="shop")
    wait_for_status(client, job.id, "running")
    worker.signal()
    code, errors = worker.end()
    assert code == 0, errors
    assert job.job().result == "finished"


def test_the_command_releases_on_a_second_signal(own_server: Server, command: Callable[..., Command]) -> None:
    client = convoke.Client(own_server.url)
    worker = command()
    for type in ("long", "blocking"):
        job = client.enqueue(type, {"seconds": 60}, queue="shop")
        wait_for_status(client, job.id, "running")
    worker.signal()
    time.sleep(0.3)
    assert worker.process.poll() is None
    worker.signal()
    worker.end()
    job_states = [(job.status, job.attempt) for job in client.jobs(queue="shop")]
    assert job_states == [("pending", 0), ("pending", 0)]


def test_the_command_says_what_is_wrong(command: Callable[..., Command]) -> None:
    wrong = [
        (["--concurrency", "0"], "concurrency"),
        (["--drain", "soon"], "duration"),
        (["--processes", "0"], "processes"),
        (["--processes", "2", "--concurrency", "0"], "concurrency"),
    ]
    for arguments, expected in wrong:
        code, errors = command(*arguments).end()
        assert code == 1 and expected in errors and "Traceback" not in errors


def test_processes_share_the_work_and_a_dead_one_is_replaced(
    own_server: Server, command: Callable[..., Command]
) -> None:
    client = convoke.Client(own_server.url)
    workers = command("--processes", "2", "--concurrency", "1")
    pids = set[int]()
    end_s = time.monotonic() + 20
    while len(pids) < 2:
        assert time.monotonic() < end_s
        requests = [convoke.Request.of("pid", {}, {"queue": "shop"}) for _ in range(8)]
        pids |= {handle.result("20s") for handle in client.enqueue_batch(requests)}
    client.enqueue("dies", {}, queue="shop")
    while not pids < (pids := pids | {client.enqueue("pid", {}, queue="shop").result("20s")}):
        assert time.monotonic() < end_s + 20
    workers.signal()
    code, errors = workers.end()
    assert code == 0, errors
    assert "worker process ended" in errors


def test_a_worker_keeps_its_runs_when_the_server_restarts(own_server: Server, start: Start) -> None:
    app = convoke.App(own_server.url)
    go = threading.Event()

    @app.job("survives", max_retries=0)
    def survives(n: int) -> int:
        go.wait()
        return n

    running = start(convoke.Worker(app, concurrency=5))
    handles = [survives.enqueue(n) for n in range(5)]
    for handle in handles:
        wait_for_status(app.client, handle.id, "running")
    own_server.kill()
    go.set()
    time.sleep(0.3)
    own_server.start()
    assert [handle.result("20s") for handle in handles] == list(range(5))
    running.stop()


def test_a_worker_moves_from_a_server_that_dies_to_one_that_responds(
    own_server: Server, shared_server: Server, start: Start, queue: str
) -> None:
    app = convoke.App([own_server.url, shared_server.url])

    @app.job("moved", queue=queue)
    def moved() -> int:
        return 7

    start(convoke.Worker(app))
    assert moved.enqueue().result("20s") == 7
    own_server.kill()
    assert moved.enqueue().result("20s") == 7


def test_no_job_is_lost_while_the_server_is_killed_again_and_again(own_server: Server, start: Start) -> None:
    app = convoke.App(own_server.url)

    @app.job("counted")
    def counted(n: int) -> int:
        time.sleep(0.005)
        return n

    @app.job("counted-async")
    async def counted_async(n: int) -> int:
        await asyncio.sleep(0.005)
        return n

    def kill_often() -> None:
        for _ in range(4):
            time.sleep(0.3)
            own_server.lose()

    start(convoke.Worker(app, concurrency=10))
    killer = threading.Thread(target=kill_often)
    killer.start()
    handles = list[convoke.Handle[int]]()
    for n in range(0, 600, 20):
        handles += app.enqueue_batch([(counted, counted_async)[each % 2].request(each) for each in range(n, n + 20)])
        time.sleep(0.05)
    killer.join()
    assert [handle.result("30s") for handle in handles] == list(range(600))


def test_a_handler_of_logging_that_blocks_does_not_cost_the_lease(
    own_server: Server, command: Callable[..., Command]
) -> None:
    client = convoke.Client(own_server.url)
    worker = command()
    # Longer than worker.stale_after. Meanwhile the worker has lines to write: it logs that its event loop is blocked.
    job = client.enqueue("holding", {"seconds": 5}, queue="shop")
    assert job.result("20s") == "finished"
    assert [run["status"] for run in own_server.history(job.id)] == ["completed"]
    worker.signal()
    code, errors = worker.end()
    assert code == 0
    assert "event loop blocked" in errors and "type=holding" in errors


def test_a_second_signal_ends_a_worker_that_holds_the_log_and_the_loop(
    own_server: Server, command: Callable[..., Command]
) -> None:
    client = convoke.Client(own_server.url)
    worker = command("--drain", "1h")
    job = client.enqueue("holding", {"seconds": 3600}, queue="shop")
    wait_for_status(client, job.id, "running")
    worker.signal()
    wait_for_status(client, job.id, "running")
    worker.signal()
    worker.end()
    # It was released, or its worker is dead: nobody waits for the handler.
    wait_for_status(client, job.id, "pending")


@pytest.fixture
def silent() -> Iterator[str]:
    """The URL of a server that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_a_signal_ends_a_worker_whose_server_never_responds(silent: str, tmp_path: Path) -> None:
    worker = Command(tmp_path, silent)
    time.sleep(1.0)  # It waits for the response to its registration.
    begun_s = time.monotonic()
    worker.signal()
    code, _ = worker.end()
    assert (code, time.monotonic() - begun_s < 10) == (0, True)


def test_a_second_signal_ends_a_worker_while_it_leaves(own_server: Server, command: Callable[..., Command]) -> None:
    client = convoke.Client(own_server.url)
    worker = command()
    assert client.enqueue("quick", {"n": 1}, queue="shop").result("20s") == 2
    own_server.freeze()
    try:
        worker.signal()
        time.sleep(0.5)  # The server does not respond to its call to leave.
        begun_s = time.monotonic()
        worker.signal()
        worker.end()
        assert time.monotonic() - begun_s < 10, "it waits for the response"
    finally:
        own_server.thaw()


def children_of(pid: int) -> set[int]:
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="reads the children of a process from /proc")
def test_the_workers_of_a_supervisor_that_is_killed_end(own_server: Server, command: Callable[..., Command]) -> None:
    client = convoke.Client(own_server.url)
    supervisor = command("--processes", "2")
    pids = {client.enqueue("pid", {}, queue="shop").result("20s") for _ in range(2)}
    workers = children_of(supervisor.process.pid)
    assert len(workers) == 2 and pids <= workers
    running = client.enqueue("long", {"seconds": 2}, queue="shop")
    wait_for_status(client, running.id, "running")
    supervisor.process.kill()
    end_s = time.monotonic() + 20
    while any(is_alive(pid) for pid in workers):
        assert time.monotonic() < end_s, "workers without a supervisor go on"
        time.sleep(0.05)
    assert running.result("20s") == "finished", "they drained"
    assert [run["status"] for run in own_server.history(running.id)] == ["completed"]
