#!/usr/bin/env python3
"""A Convoke worker over HTTP with the standard library: python3 worker.py [SERVER] [QUEUE]"""
import json, os, signal, sys, threading, time, urllib.error, urllib.request

SERVER = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CONVOKE_SERVER", "http://127.0.0.1:3000")
QUEUE = sys.argv[2] if len(sys.argv) > 2 else "python"
ME = {"workerId": f"python-{os.getpid()}-{time.time_ns()}"}
running, stopping, beat_every = set(), threading.Event(), 10.0

def call(verb, **body):
    headers = {"Content-Type": "application/json"}
    if token := os.environ.get("CONVOKE_TOKEN"):
        headers["Authorization"] = f"Bearer {token}"
    request = urllib.request.Request(f"{SERVER}/v1/worker/{verb}", json.dumps({**ME, **body}).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as answer:
                return json.loads(answer.read() or b"{}")
        except urllib.error.HTTPError as error:
            if error.code == 404 and verb != "register":  # unknown_worker: the server is new, or took us for dead
                register()
            elif error.code < 500 and error.code != 429:
                raise RuntimeError(f"{verb}: {error.read().decode()}")
        except OSError as error:
            print(f"{verb}: {error}; trying again", file=sys.stderr)
        if stopping.is_set() and verb != "report":  # the end of a run is worth waiting for
            return {}
        time.sleep(1)

def register():
    global beat_every
    answer = call("register", queues=[QUEUE], concurrency=1)
    beat_every = {"ms": 0.001, "s": 1, "m": 60}.get(answer["heartbeatInterval"].lstrip("0123456789"), 1) * \
        float(answer["heartbeatInterval"].rstrip("hms")) if answer else beat_every

def beat():
    while not stopping.wait(beat_every):
        call("heartbeat", running=list(running))

def handle(job):
    print("runs", job["type"], job["args"], flush=True)
    return {"echo": job["args"]}

signal.signal(signal.SIGTERM, lambda *_: stopping.set())
signal.signal(signal.SIGINT, lambda *_: stopping.set())
register()
threading.Thread(target=beat, daemon=True).start()
while not stopping.is_set():
    for job in call("poll", max=1, wait="2s").get("jobs", []):
        run = {"jobId": job["jobId"], "executionId": job["executionId"]}
        running.add(run["executionId"])
        try:
            end = {"kind": "completed", "result": handle(job)}
        except Exception as error:
            end = {"kind": "failed", "error": repr(error)}
        call("report", events=[{**run, "kind": "started"}, {**run, **end}])
        running.discard(run["executionId"])
call("leave")
