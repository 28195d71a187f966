#!/usr/bin/env python3
"""The least that is a Convoke worker on the bus: python3 bus_reader.py REDIS_URL [QUEUE] [PREFIX]   (needs redis-py)

It sends no heartbeats: its reads show that it lives. Runs that last longer than five minutes need bus_worker.py.
"""
import json, signal, sys, uuid
from datetime import datetime, timezone

import redis

URL = sys.argv[1]
QUEUE = sys.argv[2] if len(sys.argv) > 2 else "python"
PREFIX = sys.argv[3] if len(sys.argv) > 3 else "convoke"
ME = f"reader-{uuid.uuid4().hex}"  # the consumer's name, and the workerId of its reports
DISPATCH, GROUP = f"{PREFIX}.job.dispatch.{QUEUE}", "workers"
server, stopping = redis.Redis.from_url(URL, decode_responses=True), []

def report(job, kind, **more):
    message = {"jobId": job["jobId"], "executionId": job["executionId"], "workerId": ME, "kind": kind,
               "at": datetime.now(timezone.utc).isoformat(), **more}
    server.xadd(f"{PREFIX}.job.{job['jobId']}.status", {"data": json.dumps(message)})
    server.publish(f"{PREFIX}.job.bell", json.dumps({"jobs": [job["jobId"]]}))

for name in ("SIGTERM", "SIGINT"):
    signal.signal(getattr(signal, name), lambda *_: stopping.append(True))
while not stopping:
    try:
        taken = server.xreadgroup(GROUP, ME, {DISPATCH: ">"}, count=1, block=1000)
    except redis.ResponseError:  # NOGROUP: the queue is new, or was empty for long
        server.xgroup_create(DISPATCH, GROUP, id="0", mkstream=True)
        continue
    for entry, fields in (taken[0][1] if taken else []):
        job = json.loads(fields["data"])
        report(job, "started")
        report(job, "completed", result={"echo": job["args"]})  # your code here
        server.xack(DISPATCH, GROUP, entry)
