"""The worker's registration with the server, and whether the server responds."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from typing import Any

from .. import durations, wire
from ..connection import Call, Connection, Interrupted
from ..errors import Rejected, Unavailable
from ..servers import Servers
from .log import logger


class Session:
    """Shared by the threads, which each have a connection of their own."""

    def __init__(self, servers: Servers, worker_id: str, name: str, queues: Sequence[str], concurrency: int) -> None:
        self.servers = servers
        # Chosen by the worker, so that a registration whose response was lost makes no second worker.
        self.worker_id = worker_id
        self.heartbeat_interval_s = 10.0
        #: Set to send a heartbeat at once: after a registration or an outage the node may not know which runs are here.
        self.beat_now = threading.Event()
        fields = {"workerId": worker_id, "name": name, "queues": list(queues), "concurrency": concurrency}
        self._registration = json.dumps(fields).encode()
        self._registering = threading.Lock()
        #: Counts registrations, so that threads that were rejected together register once.
        self._term = 0
        self._is_away = False
        self._has_left = False

    def register(self, connection: Connection) -> None:
        """Registers once; raises ``Unavailable`` if it should be tried again."""
        registered = self._post(connection, "register", self._registration)
        self.heartbeat_interval_s = max(0.001, durations.seconds(registered["heartbeatInterval"]))
        self._term += 1
        logger.info("worker registered worker=%s server=%s", self.worker_id, self.servers.current)

    def call(self, connection: Connection, verb: str, body: str, wait_s: float = 0.0) -> dict[str, Any]:
        """Makes a call. If the node does not know the worker, registers it; the caller then tries again."""
        term = self._term
        try:
            reply = self._post(connection, verb, body.encode(), wait_s)
        except Rejected as error:
            if error.code != "unknown_worker" or self._has_left:
                raise
            with self._registering:
                if self._term == term:
                    self.register(connection)
            self.beat_now.set()
            raise Unavailable("the worker was unknown and has registered again") from None
        return reply

    def leave(self, connection: Connection) -> None:
        """Removes the worker. A call that is still under way must not register it again."""
        self._has_left = True
        self._post(connection, "leave", json.dumps({"workerId": self.worker_id}).encode())

    def _post(self, connection: Connection, verb: str, body: bytes, wait_s: float = 0.0) -> dict[str, Any]:
        try:
            data = connection.send(Call("POST", f"/v1/worker/{verb}", body, wait_s))
            reply = wire.as_object(_decode(data))
            if reply is None:
                raise Unavailable(f"the response is not one of Convoke: {data[:100]!r}")
        except Interrupted:
            raise
        except Unavailable as error:
            if not self._is_away:
                self._is_away = True
                logger.warning("%s failed, retrying: %s", verb, error)
            raise
        if self._is_away:
            self._is_away = False
            logger.info("the server responds again server=%s", self.servers.current)
            self.beat_now.set()
        return reply


def _decode(data: bytes) -> Any:
    try:
        return wire.decode(data)
    except ValueError:
        return None
