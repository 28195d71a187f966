"""The adapter under test: a process that takes commands on standard input and writes responses and events."""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

CALL_LIMIT_S = 30.0


class Refused(Exception):
    """The adapter responded with an error."""

    def __init__(self, error: dict[str, Any]) -> None:
        super().__init__(f"{error.get('code')}: {error.get('message')}")
        self.code = str(error.get("code"))


class Unsupported(Exception):
    """The client does not have what the case needs."""


class Adapter:
    def __init__(self, command: Sequence[str], error_path: str) -> None:
        self._error = open(error_path, "ab")
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._error, start_new_session=True
        )
        self._ids = itertools.count(1)
        self._lock = threading.Lock()
        self._responses = dict[int, "queue.SimpleQueue[dict[str, Any]]"]()
        self._events = list[dict[str, Any]]()
        self._has_event = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            message = json.loads(line)
            if "id" in message:
                self._responses[message["id"]].put(message)
            else:
                with self._has_event:
                    self._events.append(message)
                    self._has_event.notify_all()

    def call(self, command: str, **fields: Any) -> dict[str, Any]:
        """Sends a command and returns what the adapter responds; raises ``Refused`` if that is an error."""
        return self.send(command, **fields)()

    def send(self, command: str, limit_s: float = CALL_LIMIT_S, **fields: Any) -> Callable[[], dict[str, Any]]:
        """Sends a command and returns a function that waits for its response."""
        responses = queue.SimpleQueue[dict[str, Any]]()
        with self._lock:
            number = next(self._ids)
            self._responses[number] = responses
            line = json.dumps({"id": number, "command": command, **fields}, ensure_ascii=False)
            assert self._process.stdin is not None
            self._process.stdin.write(line.encode() + b"\n")
            self._process.stdin.flush()

        def receive() -> dict[str, Any]:
            try:
                response = responses.get(timeout=limit_s)
            except queue.Empty:
                raise AssertionError(f"the adapter did not respond to {command} within {limit_s:g} s") from None
            if "error" not in response:
                ok: dict[str, Any] = response["ok"]
                return ok
            if response["error"].get("code") == "unsupported":
                raise Unsupported(command)
            raise Refused(response["error"])

        return receive

    def event(self, name: str, limit_s: float = CALL_LIMIT_S, **match: Any) -> dict[str, Any]:
        """Returns the first unread event of this name whose fields match."""
        end_s = time.monotonic() + limit_s
        with self._has_event:
            while True:
                for place, event in enumerate(self._events):
                    if event["event"] == name and all(event.get(key) == value for key, value in match.items()):
                        return self._events.pop(place)
                left_s = end_s - time.monotonic()
                if left_s <= 0:
                    raise AssertionError(f"no event {name} {match or ''} within {limit_s:g} s; unread: {self._events}")
                self._has_event.wait(left_s)

    def has_event(self, name: str, **match: Any) -> bool:
        with self._has_event:
            return any(
                event["event"] == name and all(event.get(key) == value for key, value in match.items())
                for event in self._events
            )

    def kill(self) -> None:
        if self._process.poll() is None:
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._error.close()

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)
