"""Calls the handler of a run, and turns what it returns or raises into the run's end."""

from __future__ import annotations

from typing import Any

from ..context import Context, Reports, set_current_run
from ..errors import InvalidArguments
from ..jobs import Job
from . import outcome
from .run import Run

#: The event of a run's end, and how long its retry must wait.
Ended = tuple[str, "float | None"]


def call_function(job: Job[..., Any] | None, run: Run, reports: Reports) -> Ended:
    if job is None:
        return outcome.unknown(run), None
    context = Context(run, reports)
    set_current_run(context)
    try:
        arguments = job.signature.decode(run.args)
    except InvalidArguments as error:
        return outcome.mismatch(run, error), None
    try:
        if job.signature.takes_context:
            result = job.function(context, **arguments)
        else:
            result = job.function(**arguments)
    except BaseException as error:  # Also SystemExit: a handler must not end a thread of the pool.
        return outcome.failed(run, context, error)
    return outcome.completed(run, result), None


async def call_coroutine(job: Job[..., Any], run: Run, reports: Reports) -> Ended:
    context = Context(run, reports)
    set_current_run(context)
    try:
        arguments = job.signature.decode(run.args)
    except InvalidArguments as error:
        return outcome.mismatch(run, error), None
    try:
        if job.signature.takes_context:
            result = await job.function(context, **arguments)
        else:
            result = await job.function(**arguments)
    except BaseException as error:
        # A run that was interrupted is over: no end is sent.
        return outcome.failed(run, context, error) if not run.is_over else ("", None)
    return outcome.completed(run, result), None
