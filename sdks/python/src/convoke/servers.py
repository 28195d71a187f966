"""The addresses of the nodes, which of them is in use, and how long to wait after a failure."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

from . import limits


@dataclass(frozen=True)
class Server:
    host: str
    port: int
    is_tls: bool
    path: str

    @staticmethod
    def parse(url: str) -> Server:
        parts = urlsplit(url.strip() if "://" in url else f"http://{url.strip()}")
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ValueError(f"expected the URL of a server such as http://127.0.0.1:3000, got {url!r}")
        if parts.username or parts.query or parts.fragment:
            raise ValueError(f"expected a URL without user, query and fragment, got {url!r}; set token for access")
        is_tls = parts.scheme == "https"
        return Server(parts.hostname, parts.port or (443 if is_tls else 80), is_tls, parts.path.rstrip("/"))

    @property
    def authority(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{'https' if self.is_tls else 'http'}://{self.authority}{self.path}"


class Servers:
    """The nodes of one cluster. All connections use the same one until it fails; then all move to the next."""

    def __init__(self, urls: str | Sequence[str] | None, token: str | None) -> None:
        urls = urls or os.environ.get("CONVOKE_SERVER") or "http://127.0.0.1:3000"
        listed = urls.split(",") if isinstance(urls, str) else list(urls)
        if not 1 <= len(listed) <= limits.SERVERS_MAX:
            raise ValueError(f"expected 1 to {limits.SERVERS_MAX} servers, got {len(listed)}")
        self._servers = [Server.parse(url) for url in listed]
        self._place = 0
        self.token = token or os.environ.get("CONVOKE_TOKEN")

    @property
    def current(self) -> Server:
        return self._servers[self._place]

    @property
    def count(self) -> int:
        return len(self._servers)

    def move_on(self, failed: Server) -> None:
        """Goes to the next server, unless another connection has done so already."""
        place = self._place
        if self._servers[place] is failed:
            self._place = (place + 1) % len(self._servers)

    def __str__(self) -> str:
        return ",".join(map(str, self._servers))


class Backoff:
    """The delay before a retry: doubles up to a limit, with jitter, so that workers do not come back in step.

    A cluster is asked node by node: the first round over all servers has no delay worth mentioning.
    """

    FIRST_S, MAX_S = 0.1, 5.0

    def __init__(self, servers: Servers) -> None:
        self._free = servers.count - 1
        self._failures = 0

    def next_delay(self) -> float:
        self._failures += 1
        if self._failures <= self._free:
            return 0.01
        ceiling = min(self.MAX_S, self.FIRST_S * (1 << min(self._failures - self._free - 1, 10)))
        return ceiling * random.uniform(0.5, 1.0)

    def reset(self) -> None:
        self._failures = 0
