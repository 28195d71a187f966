"""A real server on a free port, with a SQLite file of its own, that can be killed and started again."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from typing import Any

START_LIMIT_S = 20.0
DRAIN_LIMIT_S = 90.0

#: Short times, so that a dead worker is found within seconds.
SETTINGS = {
    "CONVOKE_WORKER__HEARTBEAT_INTERVAL": "500ms",
    "CONVOKE_WORKER__STALE_AFTER": "2s",
    "CONVOKE_RETRY__INITIAL_DELAY": "50ms",
    "CONVOKE_RETRY__MAX_DELAY": "200ms",
}


class Server:
    def __init__(
        self,
        binary: str,
        directory: str | None = None,
        store: str = "sqlite:jobs.db",
        node: str = "conformance",
        settings: Mapping[str, str] | None = None,
        shards: str = "off",
    ) -> None:
        self._store, self._node, self._shards = store, node, shards
        self._settings = {**SETTINGS, **(settings or {})}
        self._binary = os.path.abspath(binary)
        self._directory = directory or tempfile.mkdtemp(prefix="convoke-conformance-")
        self._process: subprocess.Popen[bytes] | None = None
        self._has_started = False
        self.port = free_port()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def urls(self) -> list[str]:
        return [self.url]

    def start(self) -> None:
        """Starts the server. At the first time another port is tried if a process took the free one meanwhile."""
        for _ in range(3):
            if self._starts():
                self._has_started = True
                return
            self.kill()
            time.sleep(0.2)
            if not self._has_started:
                self.port = free_port()
        raise RuntimeError(f"the server did not start:\n{self.log()}")

    def _starts(self) -> bool:
        inherited = {name: value for name, value in os.environ.items() if not name.startswith("CONVOKE_")}
        with open(os.path.join(self._directory, "server.log"), "ab") as log:
            command = [self._binary, "serve", "--http", f"127.0.0.1:{self.port}", "--store", self._store]
            self._process = subprocess.Popen(
                [*command, "--shards", self._shards, "--node-id", self._node],
                cwd=self._directory,
                env={**inherited, **self._settings},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )
        end_s = time.monotonic() + START_LIMIT_S
        while not self._is_ready():
            if self._process.poll() is not None or time.monotonic() > end_s:
                return False
            time.sleep(0.02)
        return self._process.poll() is None

    def _is_ready(self) -> bool:
        try:
            self.get("/health")
            return True
        except (OSError, urllib.error.HTTPError):
            return False

    def kill(self) -> None:
        """Kills the server without any notice, as a power failure does."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stops the server's process: connections stay open, and nothing responds. ``thaw`` lets it go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Stops the server as its supervisor does, and waits until it has drained and exited."""
        if self._process is not None:
            self._process.send_signal(signal.SIGTERM)
            code = self._process.wait(DRAIN_LIMIT_S)
            self._process = None
            assert code == 0, f"the server exited with the code {code}:\n{self.log()}"

    def lose(self) -> None:
        """Kills the server. It is the only one, so it is started again."""
        self.kill()
        self.start()

    def drain(self) -> None:
        """Drains the server. It is the only one, so it is started again."""
        self.terminate()
        self.start()

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.url + path, timeout=30) as response:
            return json.loads(response.read())

    def job(self, job_id: str) -> dict[str, Any]:
        job: dict[str, Any] = self.get(f"/v1/jobs/{job_id}")
        return job

    def logs(self, job_id: str) -> list[dict[str, Any]]:
        lines: list[dict[str, Any]] = self.get(f"/v1/jobs/{job_id}/logs")["logs"]
        return lines

    def history(self, job_id: str) -> list[dict[str, Any]]:
        runs: list[dict[str, Any]] = self.get(f"/v1/jobs/{job_id}/history")["executions"]
        return runs

    def log(self) -> str:
        with open(os.path.join(self._directory, "server.log"), encoding="utf-8", errors="replace") as log:
            return log.read()[-4_000:]


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])
