"""``python -m convoke``: runs workers."""

from __future__ import annotations

import argparse
import importlib
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence

from . import __version__
from .app import App
from .context import LogHandler
from .errors import ConvokeError
from .processes import supervise, watch_supervisor
from .worker import Worker
from .worker.log import logger

#: How long the event loop may stay blocked after the worker has left, before the process ends anyway.
_EXIT_AFTER_S = 1.5
#: How long a handler of ``logging`` that blocks may delay that.
_LOG_LIMIT_S = 0.5


def main(arguments: Sequence[str] | None = None) -> int:
    parser = _parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=options.log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s", stream=sys.stderr
    )
    logging.getLogger().addHandler(LogHandler())
    try:
        worker = Worker(
            load(options.app),
            queues=options.queue,
            concurrency=options.concurrency,
            drain=options.drain,
            name=options.name,
            server=options.server,
        )
        # Only now, so that wrong settings are one error and not one of each process again and again.
        if options.processes != 1:
            given = list(arguments) if arguments is not None else sys.argv[1:]
            return supervise(_without_processes(given), options.processes)
        _run(worker)
    except (ConvokeError, ValueError, ImportError) as error:
        print(f"convoke: {error}", file=sys.stderr)
        return 1
    return 0


def load(path: str) -> App:
    """Imports ``module:app``. The directory in which the command runs is searched first."""
    module_name, _, name = path.partition(":")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    app = getattr(importlib.import_module(module_name), name or "app", None)
    if not isinstance(app, App):
        raise ValueError(f"expected module:app where app is a convoke.App, got {path!r}")
    return app


def _run(worker: Worker) -> None:
    watch_supervisor(worker.stop)
    # A handler that blocks the event loop for ever must not keep the process: its run was released.
    threading.Thread(target=_exit_if_blocked, args=(worker,), name="convoke-exit", daemon=True).start()
    worker.run()


def _exit_if_blocked(worker: Worker) -> None:
    worker.has_left.wait()
    time.sleep(_EXIT_AFTER_S)
    logger.error("a handler still blocks the event loop, or the log: the process ends without it")
    if logger.flush(_LOG_LIMIT_S):
        logging.shutdown()
    os._exit(1)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m convoke", description="Runs Convoke workers.", allow_abbrev=False)
    parser.add_argument("--version", action="version", version=__version__)
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")
    worker = commands.add_parser("worker", help="run the jobs of an app until SIGTERM", allow_abbrev=False)
    worker.add_argument("app", metavar="MODULE:APP", help="the App, such as shop.jobs:app")
    worker.add_argument("--server", metavar="URL", help="one or several, separated by commas [default: CONVOKE_SERVER]")
    worker.add_argument("--queue", action="append", metavar="NAME", help="may be repeated [default: those of the jobs]")
    worker.add_argument("--concurrency", type=int, default=10, metavar="N", help="runs at once [default: 10]")
    worker.add_argument("--processes", type=int, default=1, metavar="N", help="workers, one a process [default: 1]")
    worker.add_argument(
        "--drain", default="25s", metavar="D", help="how long runs may go on after SIGTERM [default: 25s]"
    )
    worker.add_argument("--name", metavar="NAME", help="shown in lists of workers [default: host:pid]")
    worker.add_argument(
        "--log-level",
        default="info",
        choices=["debug", "info", "warning", "error"],
        metavar="LEVEL",
        help="[default: info]",
    )
    return parser


def _without_processes(arguments: list[str]) -> list[str]:
    kept, skip = list[str](), False
    for argument in arguments:
        if not skip and not argument.startswith("--processes"):
            kept.append(argument)
        skip = argument == "--processes"
    return kept
