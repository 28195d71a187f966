"""How a handler's return or exception becomes the end of its run."""

from __future__ import annotations

import traceback
from typing import Any

from .. import limits, wire
from ..context import Context
from ..errors import InvalidArguments, Permanent, Retry
from .log import logger
from .run import Run


def completed(run: Run, result: Any) -> str:
    """Returns the event of a run that returned. A result that cannot be sent is a failure for good."""
    if result is None:
        return run.event("completed")
    try:
        return run.event("completed", f',"result":{wire.encode(result, "result", limits.RESULT_BYTES_MAX)}')
    except Exception as error:
        # Also what a class of the handler raises when it is converted.
        text = str(error) if isinstance(error, InvalidArguments) else f"result: {error!r}"
        return run.failed(limits.cut(text, limits.ERROR_BYTES_MAX), retry=False)


def failed(run: Run, context: Context, error: BaseException) -> tuple[str, float | None]:
    """Returns the event of a run that raised, and how long its retry must wait."""
    retry_after_s = None
    if isinstance(error, Permanent):
        text = _text(error) or "the handler reports a permanent failure"
    elif isinstance(error, Retry):
        text, retry_after_s = _text(error), error.after_s
    else:
        text = "".join(traceback.format_exception_only(type(error), error)).strip()
        context.log("".join(traceback.format_exception(type(error), error, error.__traceback__)), "error")
    text = limits.cut(text, limits.ERROR_BYTES_MAX)
    logger.warning("job failed job=%s type=%s attempt=%d error=%s", run.job_id, run.type, run.attempt, text[:500])
    return run.failed(text, retry=not isinstance(error, Permanent)), retry_after_s


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return f"a {type(error).__name__} whose text cannot be read"


def mismatch(run: Run, error: InvalidArguments) -> str:
    """Returns the event of a run whose arguments do not fit. Another attempt would have the same arguments."""
    text = limits.cut(f"the arguments do not fit {run.type}: {error}", limits.ERROR_BYTES_MAX)
    logger.warning("job failed job=%s type=%s error=%s", run.job_id, run.type, text[:500])
    return run.failed(text, retry=False)


def unknown(run: Run) -> str:
    """Returns the event of a run without a handler. A worker of another version may have one."""
    logger.warning("job failed job=%s type=%s error=no handler", run.job_id, run.type)
    return run.failed(f"this worker has no handler for the type {run.type!r}")
