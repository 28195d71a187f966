"""Fixtures: a real server, and workers that end with their test."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import convoke
from conformance.server import Server


def binary() -> str:
    path = os.environ.get("CONVOKE_BIN") or str(Path(__file__).parents[3] / "target/debug/convoke")
    assert os.path.exists(path), f"{path} does not exist: build the server, or set CONVOKE_BIN"
    return path


@pytest.fixture(scope="session")
def shared_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    server = Server(binary(), str(tmp_path_factory.mktemp("server")))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[Server]:
    """A server that the test may kill."""
    server = Server(binary(), str(tmp_path))
    server.start()
    yield server
    server.kill()


@pytest.fixture
def queue(request: pytest.FixtureRequest) -> str:
    """A queue that no other test uses."""
    return f"q-{request.node.name}"[:200].replace("[", "-").replace("]", "")


@pytest.fixture
def app(shared_server: Server) -> convoke.App:
    return convoke.App(shared_server.url)


class Running:
    def __init__(self, worker: convoke.Worker) -> None:
        self.worker = worker
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.worker.run()
        except BaseException as error:
            self.error = error

    def stop(self, limit_s: float = 20) -> None:
        self.worker.stop()
        self.join(limit_s)

    def join(self, limit_s: float = 20) -> None:
        self._thread.join(limit_s)
        assert not self._thread.is_alive(), "the worker did not stop"


@pytest.fixture
def start() -> Iterator[Callable[[convoke.Worker], Running]]:
    """Runs workers in threads, and stops them after the test."""
    running = list[Running]()

    def start(worker: convoke.Worker) -> Running:
        running.append(Running(worker))
        return running[-1]

    yield start
    for each in running:
        each.worker.stop()
        each.worker.stop()
    for each in running:
        each.join()
