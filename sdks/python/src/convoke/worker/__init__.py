"""The worker: takes runs from a node, calls their handlers, reports how they end.

Four threads of the worker's own do everything that a lease depends on: `control` registers and drains, `fetcher` polls,
`reporter` reports, `heartbeat` renews. Each has its own connection, so nothing that user code does on the event loop or
in the pool of threads can delay them. They share the `run_table`: one short lock around the runs in hand and the events
that wait to be sent. Handlers are called by `slots`.
"""

from .worker import Worker

__all__ = ["Worker"]
