"""Cases about jobs and their values: nothing dies here."""

from __future__ import annotations

import time
from typing import Any

from .adapter import Refused
from .case import QUEUE, Case, case, expect, same

#: Beyond the BMP, combining, right to left, a zero-width joiner, NUL, the last code point.
TEXTS = ["Grüße", "𝕊😀👩‍💻", "e\u0301", "שלום", "\u0000", "\U0010ffff", 'quote " and \\ /', "line\nbreak\ttab"]


@case
def completes(case: Case) -> None:
    """arguments arrive, the result comes back, the log and the history are right"""
    worker = case.worker()
    args = {"to": "ada@example.org", "nested": [{"a": None}, True, 1.5]}
    job_id = case.enqueue(worker, args, correlationId="order-17", tags=["eu"])
    run = worker.event("run", jobId=job_id)
    same((run["args"], run["attempt"], run["type"]), (args, 1, "told"), "the run")
    worker.call("log", executionId=run["executionId"], message="on its way", level="info")
    worker.call("complete", executionId=run["executionId"], result={"sent": [1, None]})
    ended = case.wait(worker, job_id)
    same((ended["status"], ended["result"], ended["error"]), ("completed", {"sent": [1, None]}, None), "the end")
    job = case.server.job(job_id)
    same((job["correlationId"], job["tags"], job["queue"]), ("order-17", ["eu"], QUEUE), "the options")
    same([line["message"] for line in case.server.logs(job_id)], ["on its way"], "the log")
    same([run["status"] for run in case.server.history(job_id)], ["completed"], "the history")


@case
def unicode(case: Case) -> None:
    """texts of all kinds in arguments, results, errors and log lines"""
    worker = case.worker()
    job_id = case.enqueue(worker, {"texts": TEXTS, "𝕊": 1}, maxRetries=0)
    run = worker.event("run", jobId=job_id)
    same(run["args"], {"texts": TEXTS, "𝕊": 1}, "the arguments")
    line = "".join(TEXTS[:4])
    worker.call("log", executionId=run["executionId"], message=line, level="warn")
    worker.call("complete", executionId=run["executionId"], result=TEXTS)
    same(case.wait(worker, job_id)["result"], TEXTS, "the result")
    same([each["message"] for each in case.server.logs(job_id)], [line], "the log")
    failing = case.enqueue(worker, maxRetries=0)
    run = worker.event("run", jobId=failing)
    worker.call("fail", executionId=run["executionId"], error=line, permanent=True)
    expect(line in (case.wait(worker, failing)["error"] or ""), "the error contains the text")


@case
def integers(case: Case) -> None:
    """integers beyond 2^53 are kept exactly, or refused"""
    worker = case.worker()
    for number in (2**53 - 1, 2**53 + 1, -(2**53) - 1, 2**63 - 1, -(2**63), 2**64 + 1, 10**39 + 7):
        try:
            job_id = case.enqueue(worker, {"n": number}, maxRetries=0)
            run = worker.event("run", jobId=job_id)
            same(run["args"], {"n": number}, "the arguments")
            worker.call("complete", executionId=run["executionId"], result=number)
            same(case.wait(worker, job_id)["result"], number, "the result")
            same(case.server.job(job_id)["result"], number, "the result at the server")
        except Refused as refused:
            expect(refused.code == "refused" and abs(number) >= 2**53, f"{number} is {refused}")


@case
def large(case: Case) -> None:
    """arguments and a result of nearly 1 MiB pass; more is refused, and nothing is enqueued"""
    worker = case.worker()
    text = "x" * ((1 << 20) - 100)
    job_id = case.enqueue(worker, {"text": text})
    run = worker.event("run", jobId=job_id)
    same(len(run["args"]["text"]), len(text), "the length of the argument")
    worker.call("complete", executionId=run["executionId"], result=text)
    same(len(case.wait(worker, job_id)["result"]), len(text), "the length of the result")
    try:
        case.enqueue(worker, {"text": text + "x" * 200})
        raise AssertionError("arguments of more than 1 MiB were accepted")
    except Refused:
        pass
    too_large = case.enqueue(worker, maxRetries=3)
    run = worker.event("run", jobId=too_large)
    worker.call("complete", executionId=run["executionId"], result=text + "x" * 200)
    ended = case.wait(worker, too_large)
    same((ended["status"], len(case.server.history(too_large))), ("failed", 1), "a result of more than 1 MiB")
    same(len(case.server.get(f"/v1/jobs?queue={QUEUE}")["jobs"]), 2, "the number of jobs")


@case
def retries(case: Case) -> None:
    """a failed attempt is repeated with the next number, and the job completes"""
    worker = case.worker()
    job_id = case.enqueue(worker, maxRetries=2)
    for attempt in (1, 2):
        run = worker.event("run", jobId=job_id)
        same(run["attempt"], attempt, "the attempt")
        worker.call("fail", executionId=run["executionId"], error=f"no {attempt}", permanent=False)
    run = worker.event("run", jobId=job_id)
    worker.call("complete", executionId=run["executionId"], result="at last")
    same(case.wait(worker, job_id)["result"], "at last", "the result")
    history = case.server.history(job_id)
    same([each["status"] for each in history], ["failed", "failed", "completed"], "the history")
    expect("no 1" in history[0]["error"], f"the error of the first attempt: {history[0]['error']}")


@case
def permanent(case: Case) -> None:
    """a permanent failure ends the job at the first attempt, with its text"""
    worker = case.worker()
    job_id = case.enqueue(worker, maxRetries=5)
    run = worker.event("run", jobId=job_id)
    worker.call("fail", executionId=run["executionId"], error="no such user", permanent=True)
    ended = case.wait(worker, job_id)
    same(ended["status"], "failed", "the status")
    expect("no such user" in ended["error"], f"the error: {ended['error']}")
    same(len(case.server.history(job_id)), 1, "the number of attempts")


@case
def types(case: Case) -> None:
    """arguments of a wrong type are a permanent failure that names the field"""
    worker = case.worker()
    good = case.enqueue(worker, {"to": "a@b.c", "count": 3}, type="typed")
    same(case.wait(worker, good)["result"], {"to": "a@b.c", "count": 3}, "the result")
    wrong: list[tuple[Any, str]] = [
        ({"to": "a@b.c", "count": "three"}, "count"),
        ({"to": 17, "count": 3}, "to"),
        ({"to": "a@b.c"}, "count"),
        ({"to": "a@b.c", "count": 1.5}, "count"),
        ({"to": None, "count": 3}, "to"),
    ]
    for args, field in wrong:
        job_id = case.enqueue(worker, args, type="typed", maxRetries=5)
        ended = case.wait(worker, job_id)
        same((ended["status"], len(case.server.history(job_id))), ("failed", 1), f"the end of {args}")
        expect(field in ended["error"], f"the error names {field}: {ended['error']}")


@case
def unknown_type(case: Case) -> None:
    """a run of a type without a handler fails, and the worker goes on"""
    worker = case.worker()
    same(case.wait(worker, case.enqueue(worker, type="nobody", maxRetries=0))["status"], "failed", "the status")
    job_id = case.enqueue(worker, {"to": "a", "count": 1}, type="typed")
    same(case.wait(worker, job_id)["status"], "completed", "the next job")


@case
def logs(case: Case) -> None:
    """lines arrive once, in order, with their levels"""
    worker = case.worker()
    job_id = case.enqueue(worker)
    run = worker.event("run", jobId=job_id)
    lines = [(f"line {n}", ("debug", "info", "warn", "error")[n % 4]) for n in range(200)]
    pending = [
        worker.send("log", executionId=run["executionId"], message=message, level=level) for message, level in lines
    ]
    for receive in pending:
        receive()
    worker.call("complete", executionId=run["executionId"], result=None)
    case.wait(worker, job_id)
    found = case.server.get(f"/v1/jobs/{job_id}/logs?limit=1000")["logs"]
    same([(line["message"], line["level"]) for line in found], lines, "the log")


@case
def progress(case: Case) -> None:
    """the last progress is shown"""
    worker = case.worker()
    job_id = case.enqueue(worker)
    run = worker.event("run", jobId=job_id)
    for percent in (10, 40, 70):
        worker.call("progress", executionId=run["executionId"], percent=percent, message=f"at {percent}")
    case.until(
        lambda: case.server.job(job_id)["progress"] == {"percent": 70, "message": "at 70"}, "the progress is 70 %"
    )
    same(case.server.job(job_id)["status"], "running", "the status")
    worker.call("complete", executionId=run["executionId"], result=None)
    same(case.wait(worker, job_id)["status"], "completed", "the end")


@case
def unique(case: Case) -> None:
    """a second enqueue of a live unique key returns the first job"""
    client = case.adapter()
    options = {"queue": QUEUE, "uniqueKey": "report-2026-11"}
    first = client.call("enqueue", type="told", args={"n": 1}, options=options)
    second = client.call("enqueue", type="told", args={"n": 2}, options=options)
    same((first["created"], second["created"]), (True, False), "created")
    same(second["jobId"], first["jobId"], "the job")
    client.call("cancel", jobId=first["jobId"], reason=None)
    third = client.call("enqueue", type="told", args={"n": 3}, options=options)
    same(third["created"], True, "created after the first has ended")


@case
def delay(case: Case) -> None:
    """a delayed job does not run before its time"""
    worker = case.worker()
    late = case.enqueue(worker, delay="700ms")
    same(case.server.job(late)["status"], "scheduled", "the status")
    soon = case.enqueue(worker)
    run = worker.event("run", jobId=soon)
    expect(not worker.has_event("run", jobId=late), "the delayed job waits")
    worker.call("complete", executionId=run["executionId"], result=None)
    run = worker.event("run", jobId=late)
    worker.call("complete", executionId=run["executionId"], result=None)
    same(case.wait(worker, late)["status"], "completed", "the end")


@case
def batch(case: Case) -> None:
    """a batch is enqueued whole and in order"""
    client = case.adapter()
    jobs = [{"type": "told", "args": {"n": n}, "options": {"queue": QUEUE}} for n in range(50)]
    made = client.call("enqueueBatch", jobs=jobs)["jobs"]
    same([case.server.job(each["jobId"])["args"]["n"] for each in made], list(range(50)), "the arguments, in order")
    wrong = [*jobs[:3], {"type": "told", "args": {}, "options": {"queue": QUEUE, "maxRetries": 5000}}]
    try:
        client.call("enqueueBatch", jobs=wrong)
        raise AssertionError("a batch with a wrong job was accepted")
    except Refused:
        pass
    same(len(case.server.get(f"/v1/jobs?queue={QUEUE}&limit=1000")["jobs"]), 50, "the number of jobs")


@case
def schedule(case: Case) -> None:
    """a schedule makes jobs until it is removed"""
    worker = case.worker()
    timing = {"name": "pulse", "every": "200ms"}
    worker.call("putSchedule", type="told", args={"tick": True}, options={"queue": QUEUE}, **timing)
    for _ in range(2):
        run = worker.event("run")
        same(run["args"], {"tick": True}, "the arguments")
        same(case.server.job(run["jobId"])["schedule"], "pulse", "the schedule of the job")
        worker.call("complete", executionId=run["executionId"], result=None)
    worker.call("removeSchedule", name="pulse")
    count = len(case.server.get(f"/v1/jobs?queue={QUEUE}")["jobs"])
    time.sleep(0.6)
    same(len(case.server.get(f"/v1/jobs?queue={QUEUE}")["jobs"]), count, "the number of jobs after the removal")
