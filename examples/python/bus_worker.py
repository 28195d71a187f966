#!/usr/bin/env python3
"""A Convoke worker on the bus: python3 bus_worker.py REDIS_URL [QUEUE] [PREFIX]   (needs redis-py)"""
import json, signal, sys, threading, time, uuid
from datetime import datetime, timezone

import redis

URL = sys.argv[1]
QUEUE = sys.argv[2] if len(sys.argv) > 2 else "python"
PREFIX = sys.argv[3] if len(sys.argv) > 3 else "convoke"
ME = f"python-{uuid.uuid4().hex}"
DISPATCH, GROUP, SLOTS = f"{PREFIX}.job.dispatch.{QUEUE}", "workers", 4
server = redis.Redis.from_url(URL, decode_responses=True)
running, lock, stopping = {}, threading.Lock(), threading.Event()  # running: executionId -> its cancel event

def now():
    return datetime.now(timezone.utc).isoformat().replace("+00:00", "Z")

def heartbeat(state="active"):
    with lock:
        runs = list(running)
    message = {"v": 1, "workerId": ME, "queues": [QUEUE], "running": len(runs), "free": SLOTS - len(runs),
               "state": state, "at": now(), "executions": runs}
    server.publish(f"{PREFIX}.worker.heartbeat", json.dumps(message))

def publish(job, kind, **more):
    message = {"v": 1, "jobId": job["jobId"], "executionId": job["executionId"], "workerId": ME, "kind": kind, "at": now(), **more}
    with server.pipeline(transaction=False) as pipe:  # the entry first, then the bell that announces it
        pipe.xadd(f"{PREFIX}.job.{job['jobId']}.status", {"data": json.dumps(message)})
        pipe.publish(f"{PREFIX}.job.bell", json.dumps({"v": 1, "jobs": [job["jobId"]]}))
        pipe.execute()

def handle(job, cancelled):  # your code; it may check cancelled.is_set()
    return {"echo": job["args"]}

def run(entry, job):
    cancelled = running[job["executionId"]]
    try:
        publish(job, "started")
        server.xack(DISPATCH, GROUP, entry)
        end = {"kind": "completed", "result": handle(job, cancelled)}
    except Exception as error:
        end = {"kind": "failed", "error": repr(error)}
    publish(job, **(end if not cancelled.is_set() else {"kind": "cancelled"}))
    with lock:
        del running[job["executionId"]]
    heartbeat()

def watch():  # heartbeats and cancellations
    topic = server.pubsub(ignore_subscribe_messages=True)
    topic.subscribe(f"{PREFIX}.job.cancel")
    last = 0.0
    while not stopping.is_set():
        if time.monotonic() - last >= 10:
            heartbeat()
            last = time.monotonic()
        if (message := topic.get_message(timeout=1)) and (run := running.get(json.loads(message["data"])["executionId"])):
            run.set()

for name in ("SIGTERM", "SIGINT"):
    signal.signal(getattr(signal, name), lambda *_: stopping.set())
threading.Thread(target=watch, daemon=True).start()
while not stopping.is_set():
    try:
        taken = server.xreadgroup(GROUP, ME, {DISPATCH: ">"}, count=max(1, SLOTS - len(running)), block=500) \
            if len(running) < SLOTS else time.sleep(0.02)
    except redis.ResponseError:  # NOGROUP: the queue is new, or was empty for long
        server.xgroup_create(DISPATCH, GROUP, id="0", mkstream=True)
        continue
    for entry, fields in (taken[0][1] if taken else []):
        job = json.loads(fields["data"])
        with lock:
            running[job["executionId"]] = threading.Event()
        threading.Thread(target=run, args=(entry, job)).start()
    if taken:
        heartbeat()
while running:  # finish what was taken, then leave
    time.sleep(0.02)
heartbeat("gone")
