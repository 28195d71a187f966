"""Uses the installed package as a program would that has nothing else: a test server, a worker, a job."""

from __future__ import annotations

import sysconfig

import convoke
from convoke.testing import Server, inline

app = convoke.App()


@app.job("email.send", queue="installed")
def send(to: str) -> str:
    return f"sent to {to} by attempt {convoke.current_run().attempt}"


assert str(convoke.__file__).startswith(sysconfig.get_path("purelib")), convoke.__file__
with inline(app):
    assert send.enqueue(to="ada").result() == "sent to ada by attempt 1"
with Server() as server, server.worker(app):
    later = send.options(delay="24h").enqueue(to="grace")
    server.advance("24h")
    assert later.result("20s") == "sent to grace by attempt 1"
print("the installed package works")
