"""Shards: the numbered parts of a service, distributed over its workers by the coordinator, over ZeroMQ.

`rules` decides, without a clock or a socket; `worker` drives it over a socket, on a thread of its own. pyzmq is needed
for the socket alone, and is imported when a worker is made: ``pip install convoke[shards]``.
"""

from .rules import ShardChange
from .worker import Curve, ShardWorker

__all__ = ["Curve", "ShardChange", "ShardWorker"]
