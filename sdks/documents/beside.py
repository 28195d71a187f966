"""``beside.py [--postgres] COMMAND…``: runs a command while a server runs, whose URL is in ``CONVOKE_SERVER``.

With ``--postgres`` its store is a private PostgreSQL, whose URL is in ``DATABASE_URL``.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from conformance.postgres import Postgres  # noqa: E402
from conformance.server import Server  # noqa: E402

command = sys.argv[1:]
postgres = Postgres() if command[0] == "--postgres" else None
store = postgres.url() if postgres else "sqlite:jobs.db"
with tempfile.TemporaryDirectory(prefix="convoke-beside-") as directory:
    server = Server(os.environ["CONVOKE_BIN"], directory, store)
    try:
        server.start()
        environment = {**os.environ, "CONVOKE_SERVER": server.url, "DATABASE_URL": store}
        code = subprocess.run(command[1:] if postgres else command, env=environment, timeout=60).returncode
    finally:
        server.kill()
        if postgres:
            postgres.stop()
sys.exit(code)
