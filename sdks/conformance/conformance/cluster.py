"""Three real nodes on one PostgreSQL, with the interface of a single server."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from .server import Server

#: Short times, so that a dead node is found within seconds; three nodes share the processors.
SETTINGS = {
    "CONVOKE_CLUSTER__HEARTBEAT_INTERVAL": "250ms",
    "CONVOKE_CLUSTER__DEAD_NODE_TIMEOUT": "2s",
    "CONVOKE_CLUSTER__LEASE_DURATION": "2s",
    "CONVOKE_CLUSTER__RENEW_INTERVAL": "500ms",
    "CONVOKE_CLUSTER__ORPHAN_CHECK_INTERVAL": "500ms",
    "CONVOKE_CLUSTER__HANDOFF_ACK_TIMEOUT": "500ms",
    "CONVOKE_CLUSTER__HANDOFF_ORPHAN_WAIT": "1s",
    "CONVOKE_CLUSTER__HANDOFF_HARD_TIMEOUT": "6s",
    "CONVOKE_WORKER__STALE_AFTER": "3s",
    # The suite reads through another node than the client: it must see the present.
    "CONVOKE_CACHE__JOB_TTL": "0s",
    "CONVOKE_CACHE__WORKER_TTL": "0s",
    "CONVOKE_CACHE__NODE_TTL": "0s",
}


class Cluster:
    def __init__(self, binary: str, directory: str, store: str) -> None:
        self._nodes = list[Server]()
        for number in (1, 2, 3):
            own = os.path.join(directory, f"node-{number}")
            os.mkdir(own)
            self._nodes.append(Server(binary, own, store, node=f"node-{number}", settings=SETTINGS))
        # The first is the one that clients use, and the one that is lost.
        self._witness = self._nodes[-1]

    @property
    def urls(self) -> list[str]:
        return [node.url for node in self._nodes]

    def start(self) -> None:
        self._nodes[0].start()
        with ThreadPoolExecutor() as pool:
            list(pool.map(Server.start, self._nodes[1:]))

    def kill(self) -> None:
        for node in self._nodes:
            node.kill()

    def lose(self) -> None:
        """Kills the node that clients use, which is the leader unless that changed. The others go on."""
        self._nodes[0].kill()

    def drain(self) -> None:
        """Stops that node as its supervisor does, and waits until it has handed over and exited."""
        self._nodes[0].terminate()

    def get(self, path: str) -> Any:
        return self._witness.get(path)

    def job(self, job_id: str) -> dict[str, Any]:
        return self._witness.job(job_id)

    def logs(self, job_id: str) -> list[dict[str, Any]]:
        return self._witness.logs(job_id)

    def history(self, job_id: str) -> list[dict[str, Any]]:
        return self._witness.history(job_id)

    def log(self) -> str:
        return "\n".join(node.log() for node in self._nodes)
