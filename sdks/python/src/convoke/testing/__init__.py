"""For tests: a server whose time the test moves, and an app whose jobs run where they are enqueued.

    with convoke.testing.Server() as server, server.worker(app):
        reminder = remind.options(delay="24h").enqueue(who="ada")
        server.advance("24h")
        assert reminder.result() == "reminded ada"

    with convoke.testing.inline(app):
        assert send.enqueue(to="ada@example.org").result() == 250

The plugin for pytest has the fixtures ``convoke_server``, ``convoke_worker`` and ``convoke_inline``.
"""

from .inline import inline
from .server import Moved, Server

__all__ = ["Moved", "Server", "inline"]
