"""Every block of Python on a page is part of an example, and every example is run."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from conformance.server import Server, free_port
from conftest import binary

SDK = Path(__file__).parents[1]
EXAMPLES = SDK / "examples"
GUIDE = SDK.parents[1] / "docs/guide"
#: The example of a transaction is run by test_transaction.py, beside a PostgreSQL.
PAGES = [SDK / "README.md", GUIDE / "13-python.md", GUIDE / "coming-from-celery.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_block_of_a_page_is_part_of_an_example(page: Path) -> None:
    examples = [path.read_text() for path in EXAMPLES.glob("*.py")]
    blocks = [rest.split("```")[0] for rest in page.read_text().split("```python\n")[1:]]
    assert blocks
    for block in blocks:
        assert any(block in example for example in examples), f"{page.name} has a block that no example has:\n{block}"


def environment(server: Server) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(SDK / "src"), "CONVOKE_SERVER": server.url}


def run(name: str, server: Server, directory: Path = EXAMPLES) -> str:
    command = [sys.executable, name]
    ended = subprocess.run(command, cwd=directory, env=environment(server), capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr
    return ended.stdout


def test_the_example_of_a_client_with_a_worker(own_server: Server) -> None:
    command = [sys.executable, "-m", "convoke", "worker", "shop:app", "--concurrency", "8"]
    worker = subprocess.Popen(command, cwd=EXAMPLES, env=environment(own_server), stderr=subprocess.DEVNULL)
    try:
        lines = run("enqueue.py", own_server).splitlines()
    finally:
        worker.terminate()
        assert worker.wait(30) == 0
    assert lines == [
        "250",
        "scheduled",
        "['ink', 'pen'] ['receipt-17', 'receipt-18']",
        "failed order 19 has nothing to charge",
    ]


def test_the_steps_of_the_guide(own_server: Server, tmp_path: Path) -> None:
    shutil.copy(EXAMPLES / "first.py", tmp_path / "shop.py")
    shutil.copy(EXAMPLES / "first_enqueue.py", tmp_path)
    command = [sys.executable, "-m", "convoke", "worker", "shop:app", "--concurrency", "8"]
    worker = subprocess.Popen(command, cwd=tmp_path, env=environment(own_server), stderr=subprocess.DEVNULL)
    try:
        assert run("first_enqueue.py", own_server, tmp_path) == "250\n"
    finally:
        worker.terminate()
        assert worker.wait(30) == 0


def test_the_example_of_tests() -> None:
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "-p",
        "convoke.testing.pytest_plugin",
        "test_shop.py",
    ]
    environment = {**os.environ, "PYTHONPATH": str(SDK / "src"), "CONVOKE_BIN": binary()}
    ended = subprocess.run(command, cwd=EXAMPLES, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0 and "2 passed" in ended.stdout, ended.stdout


def test_the_example_of_shards(tmp_path: Path) -> None:
    address = f"tcp://127.0.0.1:{free_port()}"
    coordinator = Server(binary(), str(tmp_path), shards=address)
    coordinator.start()
    command = [sys.executable, "shards.py", address]
    worker = subprocess.Popen(command, cwd=EXAMPLES, env=environment(coordinator), stdout=subprocess.PIPE, text=True)
    try:
        assert worker.stdout is not None
        assert "(0, 1, 2," in worker.stdout.readline()
    finally:
        worker.kill()
        worker.wait()
        coordinator.kill()


def test_the_example_of_a_service(own_server: Server) -> None:
    assert run("service.py", own_server) == "['ink', 'pen']\n"
