"""A worker of a sharded service: drives the rules over a socket, on a thread of its own.

The thread owns the socket; the rules are behind a lock that the application's calls take too. A connection that
receives nothing for half of a timeout is replaced, by one to the next address if there are several: only the
coordinator that leads listens. The rules alone decide whether the worker is fenced, so that a connection that hangs
cannot keep a shard.
"""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from .. import limits
from ..durations import Duration, seconds
from .rules import Rules, ShardChange

logger = logging.getLogger("convoke.shards")

_SHARDS_MAX = 100_000
_FRAME_BYTES_MAX = 1 << 20
_LINGER_MS = 1_000


@dataclass(frozen=True)
class Curve:
    """The keys of an encrypted connection: the coordinator's public one, and the worker's own pair."""

    server_key: str
    public_key: str
    secret_key: str


class ShardWorker:
    """Holds shards of a service. Needs pyzmq: ``pip install convoke[shards]``.

    ``address`` is that of the coordinator, or several, of which one leads. It registers as soon as there is one. With
    ``handoff`` the coordinator waits until the change that removes a shard is done before another worker gets it. Write
    the ``version`` beside what you write for a shard, and reject lower ones: that protects also against a process that
    was paused.

        with convoke.ShardWorker("tcp://127.0.0.1:5555", "my-service", "worker-1", 100, handoff=True) as shards:
            for change in shards.changes():
                stop(change.removed)
                start(change.added)
    """

    def __init__(
        self,
        address: str | Sequence[str],
        service: str,
        worker_id: str,
        max_shards: int,
        *,
        handoff: bool = False,
        heartbeat_interval: Duration | None = None,
        leave_grace: Duration = "25s",
        plain: tuple[str, str] | None = None,
        curve: Curve | None = None,
    ) -> None:
        try:
            self._zmq: Any = importlib.import_module("zmq")
        except ImportError:
            raise ImportError("ShardWorker needs pyzmq: pip install convoke[shards]") from None
        listed = address.split(",") if isinstance(address, str) else list(address)
        self._addresses = [each.strip() for each in listed]
        for each in self._addresses:
            if not each.startswith("tcp://"):
                raise ValueError(f"address: expected tcp://HOST:PORT, got {each!r}")
        for name, value in (("service", service), ("worker_id", worker_id)):
            if not 1 <= len(value.encode()) <= limits.NAME_BYTES_MAX:
                raise ValueError(f"{name}: expected 1 to {limits.NAME_BYTES_MAX} bytes, got {value!r}")
        if not 0 <= max_shards <= _SHARDS_MAX:
            raise ValueError(f"max_shards: expected 0 to {_SHARDS_MAX}, got {max_shards}")
        self._plain, self._curve = plain, curve
        self._leave_grace_s = seconds(leave_grace)
        interval_s = None if heartbeat_interval is None else seconds(heartbeat_interval)
        # Heartbeats of a later process have higher numbers: microseconds fit a double until 2255.
        first_beat = time.time_ns() // 1_000
        self._rules = Rules(service, worker_id, max_shards, handoff, interval_s, first_beat, time.monotonic())
        self._lock = threading.Lock()
        #: Notified when something may have changed for the application.
        self._news = threading.Condition(self._lock)
        self._loops = dict[asyncio.Event, asyncio.AbstractEventLoop]()
        #: The number of the present iteration over changes; earlier ones are over.
        self._stream = 0
        self._is_followed = False
        self._is_stopped = False
        self._waker, self._wakened = socket.socketpair()
        self._waker.setblocking(False)
        self._wakened.setblocking(False)
        self._thread = threading.Thread(target=self._run, name="convoke-shards", daemon=True)
        self._thread.start()

    @property
    def shards(self) -> tuple[int, ...]:
        """The shards that it owns now, in order. Empty while it is not certain that it counts as alive."""
        with self._lock:
            return tuple(sorted(self._rules.shards(time.monotonic())))

    def owns(self, shard: int) -> bool:
        """Returns whether it owns a shard now. Check it before each piece of work."""
        with self._lock:
            return shard in self._rules.shards(time.monotonic())

    @property
    def version(self) -> int:
        """The version of the latest assignment: the fence for writes."""
        with self._lock:
            return self._rules.version

    @property
    def is_connected(self) -> bool:
        """Whether a coordinator has replied lately."""
        with self._lock:
            return self._rules.is_certain(time.monotonic())

    @property
    def is_replaced(self) -> bool:
        """Whether another worker has registered under its id. It has then released its shards and stopped."""
        with self._lock:
            return self._rules.is_replaced

    def changes(self) -> Iterator[ShardChange]:
        """Yields the changes, one at a time, beginning with all shards that are owned now.

        A change is done when the next one is requested, or when the iteration ends: stop to work on the removed shards
        before. There is one iteration: another call ends the previous one. It ends when the worker has left or was
        replaced. Without an iteration the coordinator does not wait.
        """
        number = self._follow()
        try:
            while True:
                with self._news:
                    while (change := self._next(number)) is None and not self._is_over(number):
                        self._news.wait()
                if change is None:
                    return
                yield change
                self._done(number)
        finally:
            self._unfollow(number)

    async def changes_async(self) -> AsyncIterator[ShardChange]:
        """The same for an event loop."""
        number, event = self._follow(), asyncio.Event()
        with self._lock:
            self._loops[event] = asyncio.get_running_loop()
        try:
            while True:
                event.clear()
                with self._lock:
                    change, is_over = self._next(number), self._is_over(number)
                if change is not None:
                    yield change
                    self._done(number)
                elif is_over:
                    return
                else:
                    await event.wait()
        finally:
            with self._lock:
                del self._loops[event]
            self._unfollow(number)

    def leave(self) -> bool:
        """Leaves the service: a last change removes all shards, and they move when it is done.

        Waits for that and for the coordinator's confirmation; returns false if it took longer than ``leave_grace``. Do
        not call it in the thread that iterates over the changes: it would wait for itself.
        """
        end_s = time.monotonic() + self._leave_grace_s
        with self._news:
            self._rules.leave()
            self._tell()
            while not self._rules.is_gone and not self._is_stopped and (left_s := end_s - time.monotonic()) > 0:
                self._news.wait(left_s)
            is_confirmed, self._is_stopped = self._rules.is_gone, True
            self._tell()
        self._thread.join(_LINGER_MS / 1_000 + 1)
        return is_confirmed

    async def leave_async(self) -> bool:
        """The same for an event loop."""
        return await asyncio.to_thread(self.leave)

    def __enter__(self) -> ShardWorker:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.leave()

    # The application's side, under the lock unless it says otherwise

    def _follow(self) -> int:
        with self._news:
            self._stream += 1
            self._is_followed = True
            self._rules.start_over()
            self._tell()
            return self._stream

    def _unfollow(self, number: int) -> None:
        with self._news:
            if self._stream == number:
                self._is_followed = False
                self._rules.acknowledge()
                self._tell()

    def _done(self, number: int) -> None:
        with self._news:
            if self._stream == number:
                self._rules.acknowledge()
                self._tell()

    def _next(self, number: int) -> ShardChange | None:
        return self._rules.change(time.monotonic()) if self._stream == number else None

    def _is_over(self, number: int) -> bool:
        return self._stream != number or self._rules.is_gone or self._is_stopped

    def _tell(self) -> None:
        """Wakes the thread of the socket, and whoever waits for a change."""
        self._notify()
        try:
            self._waker.send(b"\0")
        except OSError:
            pass  # It is woken already, or has ended.

    def _notify(self) -> None:
        self._news.notify_all()
        for event, loop in list(self._loops.items()):
            try:
                loop.call_soon_threadsafe(event.set)
            except RuntimeError:
                pass  # The loop is closed.

    # The thread of the socket

    def _run(self) -> None:
        context = self._zmq.Context()
        place = 0
        try:
            while not self._converse(context, self._addresses[place % len(self._addresses)]):
                place += 1
        except Exception:
            logger.exception("the thread of a shard worker failed: it holds no shards")
        finally:
            with self._news:
                self._is_stopped = True
                self._tell()
            context.destroy(linger=_LINGER_MS)
            self._wakened.close()
            self._waker.close()

    def _converse(self, context: Any, address: str) -> bool:
        """Uses one connection until it is silent. Returns whether the worker is over."""
        dealer = self._connect(context, address)
        poller = self._zmq.Poller()
        poller.register(dealer, self._zmq.POLLIN)
        poller.register(self._wakened, self._zmq.POLLIN)
        with self._lock:
            self._rules.reconnected(time.monotonic())
        try:
            while True:
                messages, deadline_s = self._step()
                for message in messages:
                    self._send(dealer, message)
                with self._lock:
                    is_over = self._rules.is_gone or self._is_stopped
                    is_silent = self._rules.is_silent(time.monotonic())
                if is_over or is_silent:
                    return is_over
                ready: dict[Any, int] = dict(poller.poll(max(0.0, deadline_s - time.monotonic()) * 1_000 + 1))
                self._drain_waker()
                if dealer in ready:
                    self._receive(dealer)
        finally:
            dealer.close(linger=_LINGER_MS)

    def _connect(self, context: Any, address: str) -> Any:
        zmq = self._zmq
        dealer = context.socket(zmq.DEALER)
        dealer.setsockopt(zmq.MAXMSGSIZE, _FRAME_BYTES_MAX)
        if self._plain is not None:
            dealer.plain_username, dealer.plain_password = self._plain[0].encode(), self._plain[1].encode()
        if self._curve is not None:
            dealer.curve_serverkey = self._curve.server_key.encode()
            dealer.curve_publickey = self._curve.public_key.encode()
            dealer.curve_secretkey = self._curve.secret_key.encode()
        dealer.connect(address)
        return dealer

    def _step(self) -> tuple[list[dict[str, Any]], float]:
        """Lets the rules do what is due. Returns what to send, and when they are due again."""
        with self._news:
            now_s = time.monotonic()
            while not self._is_followed and self._rules.change(now_s) is not None:
                self._rules.acknowledge()
            self._rules.tick(now_s)
            messages, self._rules.outgoing = self._rules.outgoing, []
            self._notify()
            return messages, self._rules.next_deadline_s(now_s)

    def _send(self, dealer: Any, message: dict[str, Any]) -> None:
        try:
            dealer.send(json.dumps(message).encode(), self._zmq.DONTWAIT)
        except self._zmq.Again:
            pass  # Nobody reads at the other end: the rules send it again.

    def _receive(self, dealer: Any) -> None:
        while True:
            try:
                frame: bytes = dealer.recv_multipart(self._zmq.DONTWAIT)[0]
            except self._zmq.Again:
                return
            with self._lock:
                try:
                    error = self._rules.receive(frame, time.monotonic())
                except (ValueError, LookupError, TypeError) as unreadable:
                    error = f"unreadable message: {unreadable!r}"
            if error is not None:
                logger.warning("rejected by the shard coordinator error=%s", error)

    def _drain_waker(self) -> None:
        try:
            while self._wakened.recv(4_096):
                pass
        except OSError:
            pass
