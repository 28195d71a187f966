"""Cases in which something is cancelled, takes too long, stops or dies."""

from __future__ import annotations

import time

from .adapter import Adapter
from .case import Case, case, expect, same
from .server import free_port

#: On a cluster a run that was sent to a worker that drains may be released by two passes of its nodes.
DRAIN_LIMIT_S = 60.0


def start_run(case: Case, worker: Adapter, job_id: str) -> str:
    """Waits until the job runs, also for the server, and returns the run's id."""
    execution = str(worker.event("run", jobId=job_id)["executionId"])
    case.until(lambda: case.server.job(job_id)["status"] == "running", "the server knows that the job runs")
    return execution


@case
def cancel(case: Case) -> None:
    """a handler learns of the cancellation; its result is not recorded"""
    worker = case.worker(concurrency=1)
    job_id = case.enqueue(worker)
    execution = start_run(case, worker, job_id)
    worker.call("cancel", jobId=job_id, reason="not needed")
    worker.event("stopped", executionId=execution)
    ended = case.wait(worker, job_id)
    same((ended["status"], ended["error"]), ("cancelled", "not needed"), "the end")
    following = case.enqueue(worker, {"to": "a", "count": 1}, type="typed")
    same(case.wait(worker, following)["status"], "completed", "the slot is free again")
    same(case.server.job(job_id)["status"], "cancelled", "the status at last")


@case
def timeout(case: Case) -> None:
    """a run that takes too long ends as timedOut, and its handler learns of it"""
    worker = case.worker()
    job_id = case.enqueue(worker, timeout="500ms", maxRetries=0)
    run = worker.event("run", jobId=job_id)
    worker.event("stopped", executionId=run["executionId"])
    same(case.wait(worker, job_id)["status"], "timedOut", "the status")


@case
def drain(case: Case) -> None:
    """a worker that stops finishes what it has and takes no more"""
    worker = case.worker(concurrency=1)
    job_id = case.enqueue(worker)
    run = worker.event("run", jobId=job_id, limit_s=DRAIN_LIMIT_S)
    stopped = worker.send("stop", limit_s=DRAIN_LIMIT_S)
    left = case.enqueue(worker)
    worker.call("complete", executionId=run["executionId"], result="done")
    stopped()
    same(case.server.job(job_id)["result"], "done", "the result is recorded before the worker has left")
    same(case.server.get("/v1/workers")["workers"], [], "the workers")
    expect(not worker.has_event("run", jobId=left), "no more runs are taken")
    # It may have been sent to the worker before the leader knew: then it is released, and the attempt does not count.
    case.until(lambda: bool(case.server.job(left)["attempt"] == 0), "no attempt of it counts", DRAIN_LIMIT_S)


@case
def release(case: Case) -> None:
    """a run that outlasts the drain is released, and the attempt does not count"""
    worker = case.worker(drain="300ms")
    job_id = case.enqueue(worker, maxRetries=0)
    execution = start_run(case, worker, job_id)
    stopped = worker.send("stop")
    worker.event("stopped", executionId=execution)
    stopped()
    other = case.worker()
    run = other.event("run", jobId=job_id)
    same(run["attempt"], 1, "the attempt")
    other.call("complete", executionId=run["executionId"], result="by the other")
    same(case.wait(other, job_id)["result"], "by the other", "the result")


@case
def blocked(case: Case) -> None:
    """a handler that blocks for longer than worker.stale_after keeps its run"""
    worker = case.worker()
    job_id = case.enqueue(worker, maxRetries=0)
    run = worker.event("run", jobId=job_id)
    worker.call("block", executionId=run["executionId"], seconds=5)
    time.sleep(4.5)
    same(case.server.job(job_id)["executionId"], run["executionId"], "the run while the handler blocks")
    completed = worker.send("complete", executionId=run["executionId"], result="still mine")
    completed()
    same(case.wait(worker, job_id)["result"], "still mine", "the result")
    same(len(case.server.history(job_id)), 1, "the number of runs")


@case
def worker_killed(case: Case) -> None:
    """the runs of a killed worker run again on another, with the next attempt"""
    first, second = case.worker(), case.adapter()
    job_id = case.enqueue(first)
    start_run(case, first, job_id)
    first.kill()
    second = case.worker()
    run = second.event("run", jobId=job_id)
    same(run["attempt"], 2, "the attempt")
    second.call("complete", executionId=run["executionId"], result="by the second")
    same(case.wait(second, job_id)["result"], "by the second", "the result")
    same([each["status"] for each in case.server.history(job_id)], ["lost", "completed"], "the history")


@case
def stale(case: Case) -> None:
    """the end that a frozen worker reports after its run was given to another is not recorded"""
    frozen = case.worker()
    job_id = case.enqueue(frozen)
    old = start_run(case, frozen, job_id)
    frozen.freeze()
    other = case.worker()
    run = other.event("run", jobId=job_id)
    # Read by the handler as soon as its process goes on, whether or not it learns first that its run is over.
    frozen.send("complete", executionId=old, result="of the dead")
    frozen.thaw()
    time.sleep(1.0)
    job = case.server.job(job_id)
    same((job["status"], job["executionId"]), ("running", run["executionId"]), "the job after the stale report")
    other.call("complete", executionId=run["executionId"], result="of the living")
    same(case.wait(other, job_id)["result"], "of the living", "the result")
    following = [case.enqueue(other, {"to": "a", "count": n}, type="typed") for n in range(10)]
    for each in following:
        same(case.wait(other, each)["status"], "completed", "both workers go on")


@case
def server_killed(case: Case) -> None:
    """the server, or one node of three, is killed in mid-run: the run goes on, its result is recorded, new jobs run"""
    worker = case.worker()
    job_id = case.enqueue(worker)
    execution = start_run(case, worker, job_id)
    case.server.lose()
    worker.call("log", executionId=execution, message="after the loss", level="info")
    worker.call("complete", executionId=execution, result="survived")
    same(case.wait(worker, job_id)["result"], "survived", "the result")
    same(len(case.server.history(job_id)), 1, "the number of runs")
    same([line["message"] for line in case.server.logs(job_id)], ["after the loss"], "the log")
    following = case.enqueue(worker, {"to": "a", "count": 1}, type="typed")
    same(case.wait(worker, following)["status"], "completed", "the next job")


@case
def node_drained(case: Case) -> None:
    """the server, or one node of three, drains and exits in mid-run: the run goes on, its result is recorded once"""
    worker = case.worker()
    job_id = case.enqueue(worker)
    execution = start_run(case, worker, job_id)
    case.server.drain()
    expect(not worker.has_event("stopped", executionId=execution), "the handler goes on")
    worker.call("log", executionId=execution, message="after the drain", level="info")
    worker.call("complete", executionId=execution, result="drained")
    same(case.wait(worker, job_id)["result"], "drained", "the result")
    same([each["status"] for each in case.server.history(job_id)], ["completed"], "the history")
    same([line["message"] for line in case.server.logs(job_id)], ["after the drain"], "the log")
    following = case.enqueue(worker, {"to": "a", "count": 1}, type="typed")
    same(case.wait(worker, following)["status"], "completed", "the next job")


@case
def server_away(case: Case) -> None:
    """a run that ends while no server runs is recorded when the server is back, and does not run twice"""
    worker = case.worker()
    job_id = case.enqueue(worker)
    execution = start_run(case, worker, job_id)
    case.server.kill()
    worker.call("log", executionId=execution, message="alone", level="info")
    worker.call("complete", executionId=execution, result="kept")
    time.sleep(0.5)
    case.server.start()
    same(case.wait(worker, job_id)["result"], "kept", "the result")
    same(len(case.server.history(job_id)), 1, "the number of runs")
    same([line["message"] for line in case.server.logs(job_id)], ["alone"], "the log")


@case
def failover(case: Case) -> None:
    """with several URLs, of which the first does not respond, clients and workers use another"""
    dead = f"http://127.0.0.1:{free_port()}"
    worker = case.worker(servers=[dead, *case.server.urls])
    job_id = case.enqueue(worker, {"to": "a", "count": 1}, type="typed")
    same(case.wait(worker, job_id)["status"], "completed", "the job")
