#!/usr/bin/env python3
"""A Convoke worker over HTTP with the standard library: python3 worker.py [SERVER] [QUEUE]"""
import json, os, signal, sys, threading, time, urllib.error, urllib.request

SERVER = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("CONVOKE_SERVER", "http://127.0.0.1:3000")
QUEUE = sys.argv[2] if len(sys.argv) > 2 else "python"
ME = {"workerId": f"python-{os.getpid()}-{time.time_ns()}"}
running, cancelled, stopping, heartbeat_every = set(), set(), threading.Event(), 10.0

def call(verb, **body):
    headers = {"Authorization": f"Bearer {token}"} if (token := os.environ.get("CONVOKE_TOKEN")) else {}
    request = urllib.request.Request(f"{SERVER}/v1/worker/{verb}", json.dumps({**ME, **body}).encode(), headers)
    while True:
        try:
            with urllib.request.urlopen(request, timeout=30) as response:
                return json.loads(response.read() or b"{}")
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
    global heartbeat_every
    if every := call("register", queues=[QUEUE], concurrency=1).get("heartbeatInterval"):
        heartbeat_every = {"ms": 0.001, "s": 1, "m": 60}.get(every.lstrip("0123456789"), 1) * float(every.rstrip("hms"))

def heartbeat():
    while time.sleep(heartbeat_every) is None:  # for ever: also while the last run is finished
        cancelled.update(call("heartbeat", running=list(running)).get("cancel", []))

def handle(job):
    print("runs", job["type"], job["args"], flush=True)
    until = time.time() + (job["args"].get("seconds", 0) if isinstance(job["args"], dict) else 0)
    while time.time() < until and job["executionId"] not in cancelled:  # a handler that takes long checks this often
        time.sleep(0.1)
    return {"echo": job["args"]}

[signal.signal(name, lambda *_: stopping.set()) for name in (signal.SIGTERM, signal.SIGINT)]
register()
threading.Thread(target=heartbeat, daemon=True).start()
while not stopping.is_set():
    for job in call("poll", max=1, wait="2s").get("jobs", []):
        run = {"jobId": job["jobId"], "executionId": job["executionId"]}
        running.add(run["executionId"])
        call("report", events=[{**run, "kind": "started"}])
        try:
            end = {"kind": "completed", "result": handle(job)}
        except Exception as error:
            end = {"kind": "failed", "error": repr(error)}
        end = {"kind": "cancelled"} if run["executionId"] in cancelled else end
        call("report", events=[{**run, **end}])
        running.discard(run["executionId"])
call("leave")
