"""One HTTP connection of an event loop: requests and responses of HTTP/1.1 over asyncio's streams.

Only what this server sends is read: a status line, headers, and a body with a ``Content-Length`` or in chunks.
"""

from __future__ import annotations

import asyncio
import ssl

from . import limits, replies
from .connection import CONNECT_TIMEOUT_S, RESPONSE_TIMEOUT_S, Call
from .errors import Unavailable
from .servers import Server, Servers


class AsyncConnection:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._server: Server | None = None
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def send(self, call: Call) -> bytes:
        """Sends a request and returns the body of its response, by the rules of ``Connection.send``."""
        server = self._servers.current
        if self._server is not server:
            self.close()
        was_open = self._writer is not None
        try:
            try:
                reply = await self._exchange(server, call)
            except (ConnectionError, asyncio.IncompleteReadError):
                self.close()
                if not was_open:
                    raise
                reply = await self._exchange(server, call)
        except (OSError, EOFError, ValueError, asyncio.TimeoutError, asyncio.LimitOverrunError) as error:
            self.close()
            self._servers.move_on(server)
            reason = str(error) or type(error).__name__
            raise Unavailable(f"{server} did not respond to {call.method} {call.path}: {reason}") from error
        except BaseException:
            # Cancelled: what is left of the response must not be read as the next one.
            self.close()
            raise
        try:
            return replies.read(*reply)
        except Unavailable:
            self._servers.move_on(server)
            raise

    async def _exchange(self, server: Server, call: Call) -> tuple[int, bytes]:
        if self._reader is None or self._writer is None:
            await asyncio.wait_for(self._open(server), CONNECT_TIMEOUT_S)
        assert self._reader is not None and self._writer is not None
        self._writer.write(_head(server, call, self._servers.token) + (call.body or b""))
        await self._writer.drain()
        reply, keeps_open = await asyncio.wait_for(_response(self._reader), call.wait_s + RESPONSE_TIMEOUT_S)
        if not keeps_open:
            self.close()
        return reply

    async def _open(self, server: Server) -> None:
        context = ssl.create_default_context() if server.is_tls else None
        self._reader, self._writer = await asyncio.open_connection(
            server.host, server.port, ssl=context, limit=limits.HEADERS_BYTES_MAX
        )
        self._server = server

    def close(self) -> None:
        writer, self._writer, self._reader, self._server = self._writer, None, None, None
        if writer is not None:
            writer.close()


def _head(server: Server, call: Call, token: str | None) -> bytes:
    lines = [f"{call.method} {server.path}{call.path} HTTP/1.1", f"Host: {server.authority}"]
    if call.body is not None:
        lines += ["Content-Type: application/json", f"Content-Length: {len(call.body)}"]
    elif call.method != "GET":
        lines.append("Content-Length: 0")
    if token:
        lines.append(f"Authorization: Bearer {token}")
    if any("\r" in line or "\n" in line for line in lines):
        raise ValueError("expected a path and a token without line breaks")
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


async def _response(reader: asyncio.StreamReader) -> tuple[tuple[int, bytes], bool]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head[:-4].split("\r\n")
    status = int(first.split(" ", 2)[1])
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    if status == 204:
        body = b""
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        body = await _chunks(reader)
    else:
        body = await reader.readexactly(_checked(int(headers.get("content-length", "0"))))
    return (status, body), headers.get("connection", "").lower() != "close"


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    body = bytearray()
    while True:
        size = _checked(int((await reader.readuntil(b"\r\n")).split(b";")[0], 16) + len(body)) - len(body)
        body += (await reader.readexactly(size + 2))[:-2]
        if size == 0:
            return bytes(body)


def _checked(size: int) -> int:
    if not 0 <= size <= limits.RESPONSE_BYTES_MAX:
        raise ValueError(f"expected a response of at most {limits.RESPONSE_BYTES_MAX} bytes, got {size}")
    return size
