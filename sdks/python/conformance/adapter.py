"""The adapter of this package for sdks/conformance: commands on standard input, the rest on standard output.

With ``--async`` its handlers are coroutines, otherwise functions.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import queue
import sys
import threading
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

import convoke

Fields = dict[str, Any]


class Adapter:
    def __init__(self, is_async: bool) -> None:
        self._is_async = is_async
        self._output = threading.Lock()
        self._app = convoke.App()
        self._worker: convoke.Worker | None = None
        self._working: threading.Thread | None = None
        self._orders = dict[str, "queue.SimpleQueue[Fields]"]()

    def run(self) -> None:
        for line in sys.stdin.buffer:
            command: Fields = json.loads(line)
            # `wait` and `stop` take long. All others are carried out in order.
            if command["command"] in ("wait", "stop"):
                threading.Thread(target=self._respond, args=(command,), daemon=True).start()
            else:
                self._respond(command)
        os._exit(0)

    def _respond(self, command: Fields) -> None:
        method: Callable[[Fields], Fields] | None = getattr(self, f"do_{command['command']}", None)
        try:
            if method is None:
                raise NotImplementedError(f"no command {command['command']}")
            self._write({"id": command["id"], "ok": method(command)})
        except Exception as error:
            self._write({"id": command["id"], "error": {"code": _code(error), "message": str(error)}})

    def _write(self, message: Fields) -> None:
        with self._output:
            sys.stdout.buffer.write(json.dumps(message, ensure_ascii=False).encode() + b"\n")
            sys.stdout.buffer.flush()

    # Commands

    def do_hello(self, command: Fields) -> Fields:
        return {"client": "convoke-python", "version": convoke.__version__}

    def do_connect(self, command: Fields) -> Fields:
        self._app = convoke.App(command["servers"], token=command["token"])
        return {}

    def do_register(self, command: Fields) -> Fields:
        job = self._app.job(command["type"])
        if command["handler"] == "typed":
            job(typed)
        elif self._is_async:
            job(self.told_async)
        else:
            job(self.told)
        return {}

    def do_start(self, command: Fields) -> Fields:
        options = {name: command[name] for name in ("queues", "concurrency", "drain")}
        self._worker = convoke.Worker(self._app, **options)
        self._working = threading.Thread(target=self._worker.run, daemon=True)
        self._working.start()
        return {}

    def do_stop(self, command: Fields) -> Fields:
        assert self._worker is not None and self._working is not None
        self._worker.stop()
        self._working.join()
        return {}

    def do_enqueue(self, command: Fields) -> Fields:
        handle = self._app.client.enqueue(_request(command))
        return {"jobId": handle.id, "created": handle.created}

    def do_enqueueBatch(self, command: Fields) -> Fields:
        handles = self._app.client.enqueue_batch([_request(job) for job in command["jobs"]])
        return {"jobs": [{"jobId": handle.id, "created": handle.created} for handle in handles]}

    def do_wait(self, command: Fields) -> Fields:
        job = self._app.client.wait(command["jobId"], command["seconds"])
        return {"status": job.status, "result": job.result, "error": job.error}

    def do_cancel(self, command: Fields) -> Fields:
        self._app.client.cancel(command["jobId"], command["reason"])
        return {}

    def do_putSchedule(self, command: Fields) -> Fields:
        timing = convoke.Every(command["every"]) if "every" in command else convoke.Cron(command["cron"])
        self._app.client.put_schedule(command["name"], timing, _request(command))
        return {}

    def do_removeSchedule(self, command: Fields) -> Fields:
        self._app.client.remove_schedule(command["name"])
        return {}

    def _order(self, command: Fields) -> Fields:
        self._orders[command["executionId"]].put(command)
        return {}

    do_log = do_progress = do_complete = do_fail = do_block = _order

    # Handlers

    def told(self, context: convoke.Context, **args: Any) -> Any:
        orders = self._begin(context, args)
        while not context.cancelled:
            try:
                order = orders.get(timeout=0.02)
            except queue.Empty:
                continue
            if order["command"] == "complete":
                return order["result"]
            self._obey(context, order)
        self._write({"event": "stopped", "executionId": context.execution_id})

    async def told_async(self, context: convoke.Context, **args: Any) -> Any:
        orders = self._begin(context, args)
        try:
            while True:
                if orders.empty():
                    await asyncio.sleep(0.02)
                    continue
                order = orders.get()
                if order["command"] == "complete":
                    return order["result"]
                self._obey(context, order)
        except asyncio.CancelledError:
            self._write({"event": "stopped", "executionId": context.execution_id})
            raise

    def _begin(self, context: convoke.Context, args: Fields) -> queue.SimpleQueue[Fields]:
        orders = self._orders[context.execution_id] = queue.SimpleQueue[Fields]()
        ids = {"jobId": context.job_id, "executionId": context.execution_id, "type": context.type}
        self._write({"event": "run", **ids, "attempt": context.attempt, "args": args})
        return orders

    def _obey(self, context: convoke.Context, order: Fields) -> None:
        if order["command"] == "fail":
            raise convoke.Permanent(order["error"]) if order["permanent"] else RuntimeError(order["error"])
        if order["command"] == "log":
            context.log(order["message"], order["level"])
        elif order["command"] == "progress":
            context.progress(order["percent"], order["message"])
        elif order["command"] == "block":
            # Neither an await nor a release of the interpreter: what a handler does that computes.
            end_s = time.monotonic() + order["seconds"]
            while time.monotonic() < end_s:
                pass


def typed(to: str, count: int) -> Fields:
    return {"to": to, "count": count}


def _request(command: Fields) -> convoke.Request[Any]:
    options = {_snake(name): value for name, value in command["options"].items()}
    if "retry_policy" in options:
        options["retry_policy"] = {_snake(name): value for name, value in options["retry_policy"].items()}
    if "run_at" in options:
        options["run_at"] = datetime.fromisoformat(options["run_at"].replace("Z", "+00:00"))
    return convoke.Request.of(command["type"], command["args"], options)


def _snake(name: str) -> str:
    return "".join(f"_{letter.lower()}" if letter.isupper() else letter for letter in name)


def _code(error: Exception) -> str:
    if isinstance(error, NotImplementedError):
        return "unsupported"
    if isinstance(error, convoke.StillRunning):
        return "timeout"
    return "refused" if isinstance(error, convoke.InvalidArguments) else "error"


if __name__ == "__main__":
    logging.basicConfig(level="INFO", format="%(asctime)s %(levelname)s %(name)s %(message)s")
    Adapter(is_async="--async" in sys.argv[1:]).run()
