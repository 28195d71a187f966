"""Runs the code blocks of README.md, the guide and the packages' pages, each page beside a server of its own.

    CONVOKE_BIN=target/debug/convoke python3 sdks/documents/documents.py [PAGE…]

| language | what is done |
| --- | --- |
| sh | run by bash in a directory of the page, where `convoke` is the binary; the addresses below are replaced |
| sql | run by psql on a private PostgreSQL that is the store of a server |
| ruby | run by ruby, if it is installed |
| python, ts, rust | must be part of a file that a test runs: see PARTS |
| json, toml, yaml | parsed; a toml with settings is read by `convoke serve --print-config` |
| none | output, or the form of a command: not code |

A comment in the line above a block changes that:

| comment | |
| --- | --- |
| `<!-- not run: REASON -->` | it is not run |
| `<!-- run: for 2 s -->` | it is ended after that time |
| `<!-- run: terminals -->` | each line is started in a terminal of its own; only the last must end |
| `<!-- run: beside COMMAND -->` | that command is started first |
| `<!-- run: some fail -->` | some lines show errors |
| `<!-- run: ID waits -->` | `ID` is the id of a job that waits, instead of one that has ended |
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "sdks/conformance"))

from conformance.postgres import Postgres  # noqa: E402
from conformance.server import Server, free_port  # noqa: E402

PAGES = [ROOT / "README.md", *sorted((ROOT / "docs/guide").glob("*.md")), *sorted((ROOT / "sdks").glob("*/README.md"))]
#: Files that tests compile and run. A block must be in one of them, whatever its indentation.
PARTS = {
    "python": ["sdks/python/examples/*.py"],
    "ts": ["sdks/typescript/examples/*.ts"],
    "rust": ["crates/convoke/examples/*.rs"],
}
LIMIT_S = 40.0
#: How long a server runs that a block starts.
SERVER_S = 3.0
BLOCK = re.compile(r"^(?:<!--\s*(?P<mark>.*?)\s*-->\n)?```(?P<language>\w*)\n(?P<code>.*?)^```", re.M | re.S)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    mark: str
    language: str
    code: str

    def __str__(self) -> str:
        return f"{self.page.relative_to(ROOT)}:{self.line}"


class Failed(Exception):
    pass


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    found = BLOCK.finditer(text)
    return [
        Block(page, text.count("\n", 0, each.start("code")), *(each[key] or "" for key in ("mark", "language", "code")))
        for each in found
    ]


class Grounds:
    """What the blocks of all pages share: a PostgreSQL, a Redis, and the binary as `convoke`."""

    def __init__(self, binary: str, directory: Path) -> None:
        self.binary, self.directory = os.path.abspath(binary), directory
        self.programs = directory / "bin"
        self.programs.mkdir()
        (self.programs / "convoke").symlink_to(self.binary)
        self.postgres = Postgres()
        port = free_port()
        self.redis_url = f"redis://127.0.0.1:{port}"
        self.redis = subprocess.Popen(
            ["redis-server", "--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", str(directory)],
            stdout=subprocess.DEVNULL,
        )

    def close(self) -> None:
        self.redis.kill()
        self.redis.wait()
        self.postgres.stop()


class Page:
    def __init__(self, grounds: Grounds, name: str) -> None:
        self.grounds = grounds
        self.directory = grounds.directory / name
        self.directory.mkdir()
        self.database = grounds.postgres.create(re.sub(r"\W", "_", name.lower()))
        self.shards = f"tcp://127.0.0.1:{free_port()}"
        needs_postgres = name.startswith("7-")
        store = self.database if needs_postgres else "sqlite:jobs.db"
        settings = {"CONVOKE_BUS__URL": grounds.redis_url} if needs_postgres else {}
        self.server = Server(
            grounds.binary, str(self.directory), store, node="node-2", shards=self.shards, settings=settings
        )
        self.server.start()
        # An error of the API fails a block.
        (self.directory / ".curlrc").write_text("fail-with-body\n")
        self.test_server = subprocess.Popen(
            [grounds.binary, "test-server"], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.test_server.stdout is not None
        self.test_url = self.test_server.stdout.readline().strip()
        worker = [
            grounds.binary,
            "worker",
            "run",
            "--queue",
            "documents",
            "--exec",
            "cat >/dev/null",
            "--server",
            self.server.url,
        ]
        self.worker = subprocess.Popen(worker, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        subprocess.run(
            [grounds.binary, "queue", "pause", "old", "--server", self.server.url], check=True, capture_output=True
        )
        shutil.copy(ROOT / "sdks/python/examples/first.py", self.directory / "shop.py")
        for script in ("make-reports", "status.sh", "clear.sh"):
            path = self.directory / script
            path.write_text("#!/bin/sh\necho '{}'\n")
            path.chmod(0o755)

    def close(self) -> None:
        for process in (self.worker, self.test_server):
            process.kill()
            process.wait()
        self.server.kill()

    def replace(self, block: Block) -> str:
        """Returns the code with the addresses of this page's servers, and with the id of a job."""
        host = self.server.url.removeprefix("http://")
        code = block.code
        for text, own in (
            ("http://a:3000,http://b:3000,http://c:3000", self.server.url),
            ("localhost:3000", host),
            ("127.0.0.1:3000", host),
            ("tcp://127.0.0.1:5555", self.shards),
            ("tcp://0.0.0.0:5555", f"tcp://127.0.0.1:{free_port()}"),
            ("postgres://…", self.database),
            ("redis://redis:6379", self.grounds.redis_url),
            ("redis://localhost:6379", self.grounds.redis_url),
            ("redis://127.0.0.1:6379", self.grounds.redis_url),
            ("postgres://convoke:SECRET@db/convoke", self.database),
        ):
            code = code.replace(text, own)
        code = code.replace("convoke shards join", f"convoke shards join --coordinator {self.shards}")
        # The binary is `convoke` here already.
        code = re.sub(r"^alias convoke=.*\n", "", code, flags=re.M)
        code = re.sub(r"redis://(localhost|127\.0\.0\.1)(?![:\d])", self.grounds.redis_url, code)
        code = re.sub(r"\bredis-cli\b", f"redis-cli -u {self.grounds.redis_url}", code)
        if re.search(r"\bID\b", code):
            code = re.sub(r"\bID\b", self.job("nobody" if "ID waits" in block.mark else "documents"), code)
        return code

    def job(self, queue: str) -> str:
        wait = [] if queue == "nobody" else ["--wait"]
        command = [self.grounds.binary, "enqueue", "documented", "--queue", queue, "--server", self.server.url, *wait]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.split()[0]

    def environment(self) -> dict[str, str]:
        path = f"{self.grounds.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}"
        return {
            **os.environ,
            "PATH": path,
            "CONVOKE_SERVER": self.server.url,
            "PYTHONPATH": str(ROOT / "sdks/python/src"),
            "URL": self.test_url,
            "CURL_HOME": str(self.directory),
            # A server that a block starts takes free ports.
            "CONVOKE_HTTP__BIND": "127.0.0.1:0",
        }

    def shell(self, code: str, limit_s: float | None = None) -> None:
        """Runs code to its end, or for a time, and ends what it leaves behind."""
        script = "set -euo pipefail\nshopt -s expand_aliases\n" + code
        with open(self.directory / "output", "w+") as output:
            process = subprocess.Popen(
                ["bash", "-c", script],
                cwd=self.directory,
                env=self.environment(),
                stdout=output,
                stderr=output,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )
            try:
                exit_code: int | None = process.wait(limit_s or LIMIT_S)
            except subprocess.TimeoutExpired:
                exit_code = 0 if limit_s else None
            finally:
                end_group(process)
            output.seek(0)
            if exit_code != 0:
                raise Failed(f"exit code {exit_code}\n{output.read()[-3_000:]}")

    def terminals(self, code: str) -> None:
        """Starts each line in the background, and waits for the last."""
        # The server of such a block is that of the page.
        *first, last = [line for line in code.splitlines() if line.strip() and not line.startswith("convoke serve")]
        running = list[subprocess.Popen[bytes]]()
        try:
            for line in first:
                running.append(
                    subprocess.Popen(
                        ["bash", "-c", line],
                        cwd=self.directory,
                        env=self.environment(),
                        start_new_session=True,
                        stdin=subprocess.DEVNULL,
                        stdout=subprocess.DEVNULL,
                        stderr=subprocess.DEVNULL,
                    )
                )
                time.sleep(1.0)
                if running[-1].poll() not in (None, 0):
                    raise Failed(f"ended with code {running[-1].returncode}: {line}")
            self.shell(last, 8.0)
        finally:
            for process in running:
                end_group(process)

    def run(self, block: Block) -> str:
        """Runs a block and returns how, in a word."""
        if block.mark.startswith("not run:"):
            return "not run"
        code, language = self.replace(block), block.language
        limit = re.search(r"for (\d+) s", block.mark)
        if language == "sh":
            # A server does not end by itself.
            limit_s = (
                SERVER_S if re.match(r"convoke (serve|test-server)\b(?!.*--print)", code) and not block.mark else None
            )
            self.sh(block, code, float(limit[1]) if limit else limit_s)
        elif language == "sql":
            self.sql(code)
        elif language == "ruby":
            self.shell(f"ruby - <<'RUBY'\n{code}\nRUBY\n")
        elif language in PARTS:
            is_part(language, block.code)
            return "part"
        elif language == "json":
            for line in re.split(r"\n(?=\{)", block.code.strip()):
                json.loads(line)
        elif language == "toml":
            self.toml(block.code)
        elif language == "yaml":
            self.shell(
                f"python -c 'import sys, yaml; list(yaml.safe_load_all(sys.stdin))' <<'YAML'\n{block.code}YAML\n"
            )
        elif language == "":
            return "output"
        else:
            raise Failed(f"no rule for the language {language!r}")
        return "run"

    def sh(self, block: Block, code: str, limit_s: float | None) -> None:
        if "terminals" in block.mark:
            return self.terminals(code)
        beside = re.search(r"beside (.*)", block.mark)
        lines = [self.replace(Block(block.page, block.line, "", "sh", beside[1]))] if beside else []
        if "some fail" in block.mark:
            # Its lines show errors, too.
            code = "\n".join(f"{line.partition('   #')[0].rstrip()} || true" for line in code.splitlines())
        return self.terminals("\n".join([*lines, code.replace("\n", "; ")])) if beside else self.shell(code, limit_s)

    def sql(self, code: str) -> None:
        values = re.sub(r"\$\d", "'1'", code)
        prelude = """
            do $$ begin create role app; exception when duplicate_object then null; end $$;
            create table if not exists orders (id int);
            create table if not exists report (id int, body text, epoch text);
        """
        self.shell(f"psql -q -v ON_ERROR_STOP=1 '{self.database}' <<'SQL'\n{prelude}{values};\nSQL\n")

    def toml(self, code: str) -> None:
        if "dependencies]" in code:
            return  # Of a Cargo.toml.
        # Keys and secrets of the page stand for one's own.
        kept = "\n".join(line for line in code.splitlines() if not re.search(r"SECRET|KEY|user:password", line))
        (self.directory / "page.toml").write_text(kept)
        self.shell("convoke serve --config page.toml --print-config >/dev/null")


def is_part(language: str, code: str) -> None:
    def plain(text: str) -> str:
        text = re.sub(
            r'from "\.\./src/(?:(\w+)/)?index\.js"',
            lambda found: f'from "convoke{"/" + found[1] if found[1] else ""}"',
            text,
        )
        return "\n".join(line.strip() for line in text.splitlines() if line.strip())

    files = [path for pattern in PARTS[language] for path in ROOT.glob(pattern)]
    if not any(plain(code) in plain(path.read_text(encoding="utf-8")) for path in files):
        raise Failed(f"is part of none of {', '.join(PARTS[language])}, which tests run")


def end_group(process: subprocess.Popen[bytes]) -> None:
    for number, wait_s in ((signal.SIGINT, 3.0), (signal.SIGKILL, 5.0)):
        try:
            os.killpg(process.pid, number)
        except ProcessLookupError:
            break
        end_s = time.monotonic() + wait_s
        while time.monotonic() < end_s:
            process.poll()
            try:
                os.killpg(process.pid, 0)
            except ProcessLookupError:
                break
            time.sleep(0.02)
    process.wait()


def main() -> int:
    pages = [Path(name).resolve() for name in sys.argv[1:]] or PAGES
    directory = Path(tempfile.mkdtemp(prefix="convoke-documents-"))
    grounds = Grounds(os.environ["CONVOKE_BIN"], directory)
    count, failures = dict[str, int](), 0
    try:
        for place, path in enumerate(pages):
            found = blocks(path)
            if len(found) != len(re.findall(r"^```\w*$", path.read_text(), re.M)) // 2:
                raise RuntimeError(f"{path}: a block is not closed, or its fence has more than a language")
            page = Page(grounds, f"{path.stem}-{place}") if found else None
            for block in found:
                assert page is not None
                try:
                    how = page.run(block)
                    count[how] = count.get(how, 0) + 1
                    print(
                        f"{how:8} {block} {block.language} {block.mark if how == 'not run' else ''}".rstrip(),
                        flush=True,
                    )
                except (Failed, ValueError, subprocess.SubprocessError) as error:
                    failures += 1
                    print(f"FAILED   {block} {block.language}\n{error}\n", flush=True)
            if page is not None:
                page.close()
    finally:
        grounds.close()
        shutil.rmtree(directory, ignore_errors=True)
    print(", ".join(f"{number} {how}" for how, number in sorted(count.items())) + f", {failures} failed")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
