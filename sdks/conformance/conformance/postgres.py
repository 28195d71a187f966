"""A private PostgreSQL for clusters, in a temporary directory and on a free port."""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import tempfile

from .server import free_port


class Postgres:
    """Run by the user postgres if the suite is run by root, because PostgreSQL rejects root."""

    def __init__(self) -> None:
        self._programs = _programs()
        self._directory = tempfile.mkdtemp(prefix="convoke-postgres-")
        self._user = "postgres" if os.getuid() == 0 else None
        if self._user:
            shutil.chown(self._directory, self._user)
        self.port = 0
        self._call("initdb", "-D", self._directory, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        for attempt in range(3):
            self.port = free_port()
            # Many small clusters at once: connections are cheap, and nothing here must survive a power failure.
            settings = "-c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c fsync=off -c max_connections=500"
            options = f"-p {self.port} {settings}"
            try:
                self._call(
                    "pg_ctl", "-D", self._directory, "-o", options, "-w", "-l", f"{self._directory}/log", "start"
                )
                return
            except subprocess.CalledProcessError:
                # Another process may have taken the port meanwhile.
                if attempt == 2:
                    raise

    def url(self, scheme: str = "postgres", database: str = "postgres") -> str:
        return f"{scheme}://postgres@127.0.0.1:{self.port}/{database}"

    def create(self, database: str) -> str:
        """Creates an empty database and returns its URL."""
        self._call("createdb", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", database)
        return self.url(database=database)

    def stop(self) -> None:
        self._call("pg_ctl", "-D", self._directory, "-m", "immediate", "stop")
        shutil.rmtree(self._directory, ignore_errors=True)

    def _call(self, program: str, *arguments: str) -> None:
        command = [os.path.join(self._programs, program), *arguments]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, user=self._user, cwd=self._directory)


def _programs() -> str:
    """Returns the directory of PostgreSQL's programs."""
    on_path = shutil.which("initdb")
    listed = [
        os.environ.get("CONVOKE_TEST_POSTGRES_BIN", ""),
        *sorted(glob.glob("/usr/lib/postgresql/*/bin"), reverse=True),
        os.path.dirname(on_path) if on_path else "",
    ]
    for directory in listed:
        if directory and os.path.exists(os.path.join(directory, "initdb")):
            return directory
    raise RuntimeError(
        "PostgreSQL is not installed: no initdb in CONVOKE_TEST_POSTGRES_BIN, /usr/lib/postgresql or PATH"
    )
