"""A worker that prints which shards it gets and loses, until it is ended."""

import sys

import convoke

address = sys.argv[1] if len(sys.argv) > 1 else "tcp://127.0.0.1:5555"

with convoke.ShardWorker(address, "my-service", "worker-1", 100, handoff=True) as shards:
    for change in shards.changes():
        # Stop to work on change.removed here: they move when the next change is requested.
        print(change.version, change.added, change.removed, flush=True)
