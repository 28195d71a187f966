"""One HTTP connection for one thread. It is kept open, and opened again at the next server after a failure."""

from __future__ import annotations

import http.client
import socket
import ssl
from dataclasses import dataclass

from . import limits, replies
from .errors import Unavailable
from .servers import Server, Servers

CONNECT_TIMEOUT_S = 5.0
#: How long a response may take beyond the wait that the request asks for.
RESPONSE_TIMEOUT_S = 30.0


class Interrupted(Unavailable):
    """Another thread ended the request. Nothing is wrong with the server."""


@dataclass(frozen=True)
class Call:
    """A request. ``wait_s`` is how long the server may hold it back."""

    method: str
    path: str
    body: bytes | None = None
    wait_s: float = 0.0


class Connection:
    def __init__(self, servers: Servers) -> None:
        self._servers = servers
        self._http: http.client.HTTPConnection | None = None
        self._server: Server | None = None
        self._interrupted = False

    def send(self, call: Call) -> bytes:
        """Sends a request and returns the body of its response.

        A server that does not respond or cannot serve is left for the next one, and ``Unavailable`` is raised. A
        connection that was kept open may have been closed by the server meanwhile: the request is then sent once more.
        All requests of this package may be sent twice.
        """
        server = self._servers.current
        if self._server is not server:
            self.close()
        was_open = self._http is not None
        try:
            try:
                reply = self._exchange(server, call)
            except (http.client.RemoteDisconnected, ConnectionError, http.client.CannotSendRequest):
                self.close()
                if self._interrupted or not was_open:
                    raise
                reply = self._exchange(server, call)
        except (OSError, http.client.HTTPException) as error:
            self.close()
            if self._interrupted:
                self._interrupted = False
                raise Interrupted("the request was interrupted") from None
            self._servers.move_on(server)
            raise Unavailable(f"{server} did not respond to {call.method} {call.path}: {_text(error)}") from error
        try:
            return replies.read(*reply)
        except Unavailable:
            self._servers.move_on(server)
            raise

    def _exchange(self, server: Server, call: Call) -> tuple[int, bytes]:
        connection = self._http or self._open(server)
        sock: socket.socket = connection.sock
        sock.settimeout(call.wait_s + RESPONSE_TIMEOUT_S)
        headers = {"Content-Type": "application/json"} if call.body is not None else {}
        if self._servers.token:
            headers["Authorization"] = f"Bearer {self._servers.token}"
        connection.request(call.method, server.path + call.path, call.body, headers)
        response = connection.getresponse()
        body = (
            b"" if (response.length or 0) > limits.RESPONSE_BYTES_MAX else response.read(limits.RESPONSE_BYTES_MAX + 1)
        )
        if response.length:
            # A read with a limit returns what there is, also if the connection ends within the body.
            raise http.client.IncompleteRead(body, response.length)
        if len(body) > limits.RESPONSE_BYTES_MAX:
            raise http.client.HTTPException(f"the response has more than {limits.RESPONSE_BYTES_MAX} bytes")
        if response.will_close:
            self.close()
        return response.status, body

    def _open(self, server: Server) -> http.client.HTTPConnection:
        connection = http.client.HTTPConnection(server.host, server.port, timeout=CONNECT_TIMEOUT_S)
        if server.is_tls:
            context = ssl.create_default_context()
            connection = http.client.HTTPSConnection(
                server.host, server.port, timeout=CONNECT_TIMEOUT_S, context=context
            )
        connection.connect()
        self._http, self._server = connection, server
        return connection

    def interrupt(self) -> None:
        """Ends the request that is under way in another thread: it raises ``Interrupted``."""
        self._interrupted = True
        connection = self._http
        sock = connection.sock if connection else None
        if sock is not None:
            try:
                sock.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass  # It has ended by itself.

    def close(self) -> None:
        connection, self._http, self._server = self._http, None, None
        if connection is not None:
            connection.close()


def _text(error: BaseException) -> str:
    return str(error) or type(error).__name__
