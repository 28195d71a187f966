"""The plugin for pytest: fixtures for tests of jobs. It is loaded by its entry point, and does nothing until used."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from .. import App, Worker
from .inline import inline
from .server import Server


@pytest.fixture
def convoke_server() -> Iterator[Server]:
    """A test server of the test's own: in memory, its time stands still until the test moves it."""
    with Server() as server:
        yield server


@pytest.fixture
def convoke_worker(convoke_server: Server) -> Iterator[Callable[..., Worker]]:
    """Starts workers at the test server: ``convoke_worker(app, concurrency=1)``. They stop after the test."""
    with ExitStack() as stack:

        def start(app: App, **options: Any) -> Worker:
            return stack.enter_context(convoke_server.worker(app, **options))

        yield start


@pytest.fixture
def convoke_inline() -> Iterator[Callable[[App], None]]:
    """Runs the jobs of an app where they are enqueued, until the test ends: ``convoke_inline(app)``."""
    with ExitStack() as stack:
        yield lambda app: stack.enter_context(inline(app))
