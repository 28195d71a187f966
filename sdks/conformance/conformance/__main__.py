"""``python3 -m conformance [--case NAME] -- ADAPTER COMMAND``"""

from __future__ import annotations

import argparse
import os
import sys
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from . import faults, values
from .adapter import Adapter, Unsupported
from .case import CASES, Case
from .postgres import Postgres

__all__ = ["faults", "values"]


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="conformance", description="Checks a client of Convoke against a real server."
    )
    parser.add_argument("--list", action="store_true", help="print the cases")
    parser.add_argument(
        "--case", action="append", choices=list(CASES), metavar="NAME", help="only this one; may be repeated"
    )
    parser.add_argument("--jobs", type=int, default=4, metavar="N", help="cases at once [default: 4]")
    parser.add_argument("--allow-unsupported", action="store_true", help="a case that is not supported is no failure")
    parser.add_argument(
        "--cluster",
        action="store_true",
        help="three nodes on a private PostgreSQL, whose programs must be installed [default: one node on SQLite]",
    )
    parser.add_argument("--binary", default=os.environ.get("CONVOKE_BIN"), help="the server [default: CONVOKE_BIN]")
    parser.add_argument("adapter", nargs="*", metavar="COMMAND", help="starts the adapter; after --")
    options = parser.parse_args()
    if options.list:
        for name, function in CASES.items():
            print(f"{name:15} {function.__doc__}")
        return 0
    if not options.adapter or not options.binary:
        parser.error("expected the command of the adapter after --, and the server by --binary or CONVOKE_BIN")
    print(_hello(options.adapter), flush=True)
    names, postgres = options.case or list(CASES), Postgres() if options.cluster else None
    try:
        with ThreadPoolExecutor(options.jobs) as pool:
            outcomes = list(pool.map(lambda name: _run(name, options.binary, options.adapter, postgres), names))
    finally:
        if postgres is not None:
            postgres.stop()
    count = {outcome: outcomes.count(outcome) for outcome in ("passed", "unsupported", "failed")}
    print(", ".join(f"{number} {outcome}" for outcome, number in count.items()))
    return 1 if count["failed"] or (count["unsupported"] and not options.allow_unsupported) else 0


def _hello(command: list[str]) -> str:
    """Returns the name and the version of the client."""
    adapter = Adapter(command, os.devnull)
    try:
        hello = adapter.call("hello")
        return f"{hello['client']} {hello['version']}"
    finally:
        adapter.kill()


def _run(name: str, binary: str, command: list[str], postgres: Postgres | None) -> str:
    started_s, case = time.monotonic(), Case(binary, command, postgres)
    try:
        with case:
            CASES[name](case)
    except Unsupported as unsupported:
        print(f"not supported  {name}: {unsupported}", flush=True)
        return "unsupported"
    except Exception as error:
        trace = "".join(traceback.format_exception(type(error), error, error.__traceback__))
        print(f"FAILED         {name}\n{trace}\n{case.errors()}", flush=True)
        return "failed"
    print(f"passed         {name} ({time.monotonic() - started_s:.1f} s)", flush=True)
    return "passed"


sys.exit(main())
