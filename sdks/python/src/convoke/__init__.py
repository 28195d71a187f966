"""Client and worker for Convoke.

    app = convoke.App("http://127.0.0.1:3000")

    @app.job("email.send", queue="mail", max_retries=5, timeout="30s")
    def send(to: str) -> int:
        ...

    send.enqueue(to="ada@example.org").result()

``python -m convoke worker module:app`` runs the jobs.
"""

from .app import App
from .async_client import AsyncClient, AsyncHandle
from .client import Client, Handle
from .context import Context, Level, LogHandler, current_run
from .durations import Duration
from .errors import (
    ConvokeError,
    InvalidArguments,
    NotCompleted,
    Permanent,
    Rejected,
    Retry,
    StillRunning,
    Unavailable,
)
from .jobs import AsyncJob, Job, Sender
from .options import Options, Priority, Request, RetryPolicy
from .records import Cron, Every, JobRecord, LogLine, Progress, Schedule
from .shards import Curve, ShardChange, ShardWorker
from .transaction import enqueue_in, enqueue_in_async
from .worker import Worker

__version__ = "0.1.0"

__all__ = [
    "App",
    "AsyncClient",
    "AsyncHandle",
    "AsyncJob",
    "Client",
    "Context",
    "ConvokeError",
    "Cron",
    "Curve",
    "Duration",
    "Every",
    "Handle",
    "InvalidArguments",
    "Job",
    "JobRecord",
    "Level",
    "LogHandler",
    "LogLine",
    "NotCompleted",
    "Options",
    "Permanent",
    "Priority",
    "Progress",
    "Rejected",
    "Request",
    "Retry",
    "RetryPolicy",
    "Schedule",
    "Sender",
    "ShardChange",
    "ShardWorker",
    "StillRunning",
    "Unavailable",
    "Worker",
    "current_run",
    "enqueue_in",
    "enqueue_in_async",
]
