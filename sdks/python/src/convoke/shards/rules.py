"""The worker's side of the protocol of shards: a state machine without a clock or a socket.

It registers, sends heartbeats, and holds its shards as long as it is certain that the coordinator considers it alive. A
reply to a heartbeat that was sent at ``t`` gives certainty until ``t + timeout - margin``, because the coordinator
received it no earlier than ``t``. Without certainty it has no shards: it has fenced itself before another worker can
get them.

The application receives each change of its shards, one at a time, and acknowledges it once it has stopped to work on
the removed ones. Until then those shards are still held: they are reported, and ``released`` is not sent.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass
from enum import Enum
from typing import Any

from .. import durations, wire

#: The timeout of the protocol, until a coordinator sends another.
_HEARTBEAT_TIMEOUT_S = 15.0
#: How often it sends while it has no certainty.
_TRY_INTERVAL_MAX_S = 1.0
#: Upper bound of the heartbeats that wait for a reply.
_BEATS_MAX = 64
#: Each term of a coordinator has this many versions of its own.
_VERSIONS_OF_A_TERM = 1 << 22

Message = dict[str, Any]

_NONE: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ShardChange:
    """A change of the shards that the application may work on. ``version`` is the fence of ``shards``."""

    added: tuple[int, ...]
    removed: tuple[int, ...]
    shards: tuple[int, ...]
    version: int


class _Stage(Enum):
    WORKING = 0
    #: It releases its shards before it leaves.
    LEAVING = 1
    #: It holds nothing, and sends ``leave`` until that is confirmed.
    SENDING_LEAVE = 2
    #: Another process has its id: it stops its work, and sends nothing.
    REPLACED = 3
    GONE = 4


class Rules:
    """``first_beat`` should be higher in every later process of a worker, as the time is."""

    def __init__(
        self,
        service: str,
        worker_id: str,
        max_shards: int,
        handoff: bool,
        heartbeat_interval_s: float | None,
        first_beat: int,
        now_s: float,
    ) -> None:
        self._names = {"serviceName": service, "workerId": worker_id}
        self._max_shards, self._handoff = max_shards, handoff
        self._heartbeat_interval_s = heartbeat_interval_s
        self._timeout_s = _HEARTBEAT_TIMEOUT_S
        #: The version of the latest assignment, and the highest ever seen: a new coordinator begins above it.
        self.version = 0
        self._seen = 0
        self._assigned = _NONE
        self._certain_until_s: float | None = None
        #: Numbers and times of heartbeats without a reply.
        self._beats = deque[tuple[int, float]](maxlen=_BEATS_MAX)
        self._next_beat = self._instance = first_beat
        self._next_send_s = self._last_received_s = self._version_received_s = now_s
        #: The shards in the last change for the application.
        self._reported = _NONE
        #: The shards that the last change removed, until it is acknowledged.
        self._releasing: frozenset[int] | None = None
        #: Recently released shards, each with the number of the first heartbeat that no longer lists them.
        self._released = deque[tuple[int, frozenset[int]]](maxlen=_BEATS_MAX)
        self._stage = _Stage.WORKING
        self.is_replaced = False
        #: Messages to send, in order.
        self.outgoing = list[Message]()

    # State

    def shards(self, now_s: float) -> frozenset[int]:
        """Returns the shards that it may work on: none without certainty."""
        is_working = self._stage is _Stage.WORKING and self.is_certain(now_s)
        return self._assigned if is_working else _NONE

    def is_certain(self, now_s: float) -> bool:
        """Returns whether it is certain that the coordinator considers it alive."""
        return self._certain_until_s is not None and now_s < self._certain_until_s

    def is_silent(self, now_s: float) -> bool:
        """Returns whether no reply came for half of the timeout: a new connection may reach a coordinator."""
        return now_s >= self._silent_at_s()

    @property
    def is_gone(self) -> bool:
        """Whether it has left or was replaced, and holds nothing."""
        return self._stage is _Stage.GONE

    def next_deadline_s(self, now_s: float) -> float:
        """Returns when ``tick`` has something to do, or certainty ends."""
        next_s = min(self._next_send_s, self._silent_at_s())
        until_s = self._certain_until_s
        return min(until_s, next_s) if until_s is not None and until_s > now_s else next_s

    # Events

    def reconnected(self, now_s: float) -> None:
        """Handles a new connection: the last messages on the old one may be lost."""
        self._next_send_s = self._last_received_s = now_s

    def tick(self, now_s: float) -> None:
        """Adds the messages that are due."""
        if self._stage is _Stage.LEAVING and self._holds_nothing:
            self._stage, self._next_send_s = _Stage.SENDING_LEAVE, now_s
        if self._stage is _Stage.REPLACED and self._holds_nothing:
            self._stage = _Stage.GONE
        if now_s < self._next_send_s or self._stage in (_Stage.REPLACED, _Stage.GONE):
            return
        is_certain, interval_s = self.is_certain(now_s), self._interval_s()
        if not is_certain or self._stage is _Stage.SENDING_LEAVE:
            interval_s = min(interval_s, _TRY_INTERVAL_MAX_S)
        # Shortened at random, so that workers that reconnected together do not send in step.
        self._next_send_s = now_s + interval_s * random.uniform(0.85, 1.0)
        if self._stage is _Stage.SENDING_LEAVE:
            self._send("leave", version=self.version, beat=self._number())
        else:
            self._report("heartbeat" if is_certain else "register", now_s)

    def receive(self, frame: bytes, now_s: float) -> str | None:
        """Handles a message of the coordinator. Returns the text of an error that it sent."""
        message = wire.as_object(wire.decode(frame)) or {}
        kind, data = message.get("type"), wire.as_object(message.get("data")) or {}
        if self.is_replaced:
            return None
        if kind == "assignment":
            self._take_assignment(data, now_s)
        elif kind == "revoke":
            self._take_revocation(frozenset(map(int, data["shards"])), int(data["version"]), now_s)
        elif kind == "error":
            if data.get("code") == "replaced":
                self._give_up()
            self._last_received_s = now_s
            return f"{data.get('code')}: {data.get('message')}"
        return None

    def _give_up(self) -> None:
        self.is_replaced = True
        self._assigned, self._certain_until_s = _NONE, None
        if self._stage is not _Stage.GONE:
            self._stage = _Stage.REPLACED

    def _take_assignment(self, data: dict[str, Any], now_s: float) -> None:
        version, beat = int(data.get("version") or 0), data.get("beat")
        if self._is_outdated(version, now_s):
            return
        self._last_received_s = now_s
        is_of_successor = self.version != 0 and version // _VERSIONS_OF_A_TERM != self.version // _VERSIONS_OF_A_TERM
        self._record_version(version, now_s)
        timeout: str | None = data.get("heartbeatTimeout")
        if timeout:
            self._timeout_s = durations.seconds(timeout) or self._timeout_s
        self._assigned = frozenset(map(int, data["assignedShards"]))
        if beat is None:
            self._take_unrequested(now_s)
        else:
            # It replies to a report of shards that are released by now: a new coordinator may take them for held.
            for first, shards in self._released:
                if first > beat:
                    self._assigned -= shards
            self._confirm(int(beat))
        self._next_send_s = min(self._next_send_s, now_s + self._interval_s())
        if is_of_successor:
            # A new coordinator waits for a report that is later than all grants of its predecessor.
            self._next_send_s = now_s

    def _take_unrequested(self, now_s: float) -> None:
        if self._stage is not _Stage.SENDING_LEAVE:
            return
        if self._assigned:
            # A grant was sent before the leave was received: send it again, with that version.
            self._next_send_s = now_s
        else:
            self._stage = _Stage.GONE

    def _take_revocation(self, shards: frozenset[int], version: int, now_s: float) -> None:
        if self._is_outdated(version, now_s):
            return
        self._last_received_s = now_s
        self._record_version(version, now_s)
        self._assigned -= shards
        self._release(shards - self._reported - (self._releasing or _NONE))

    def _is_outdated(self, version: int, now_s: float) -> bool:
        """Returns whether a message is of a former coordinator, or overtaken by a later one.

        If nothing else was received for a whole timeout, and no shard is held, the coordinator has begun again with
        lower versions.
        """
        begins_anew = self._holds_nothing and now_s >= self._version_received_s + self._timeout_s
        return version < self.version and not begins_anew

    def _record_version(self, version: int, now_s: float) -> None:
        self.version, self._version_received_s = version, now_s
        self._seen = max(self._seen, version)

    def _confirm(self, beat: int) -> None:
        sent_s = next((sent_s for number, sent_s in self._beats if number == beat), None)
        if sent_s is None:
            return
        self._beats = deque((each for each in self._beats if each[0] > beat), maxlen=_BEATS_MAX)
        self._released = deque((each for each in self._released if each[0] > beat), maxlen=_BEATS_MAX)
        # A tenth is left for clock drift, and for the application to stop.
        self._certain_until_s = max(self._certain_until_s or 0.0, sent_s + self._timeout_s * 0.9)

    # Calls of the application

    def change(self, now_s: float) -> ShardChange | None:
        """Returns the next change; ``None`` if there is none, or the last one is not acknowledged."""
        if self._releasing is not None:
            return None
        shards = self.shards(now_s)
        added, removed = shards - self._reported, self._reported - shards
        if not added and not removed:
            return None
        self._reported, self._releasing = shards, removed
        return ShardChange(tuple(sorted(added)), tuple(sorted(removed)), tuple(sorted(shards)), self.version)

    def acknowledge(self) -> None:
        """Records that the application has applied the last change."""
        released, self._releasing = self._releasing or _NONE, None
        if released:
            self._released.append((self._next_beat, released))
        self._release(released)

    def start_over(self) -> None:
        """Records that the application works on no shard, and repeats all of them in the next change."""
        self.acknowledge()
        self._releasing, self._reported = self._reported, _NONE
        self.acknowledge()

    def leave(self) -> None:
        """Leaves: releases everything, then sends ``leave``."""
        if self._stage is _Stage.WORKING:
            self._stage = _Stage.LEAVING

    def _release(self, shards: frozenset[int]) -> None:
        # A replaced worker is not waited for: its shards are granted to another under a later version.
        if self._handoff and shards and not self.is_replaced:
            self._send("released", shards=sorted(shards), version=self.version)

    @property
    def _holds_nothing(self) -> bool:
        return not self._reported and self._releasing is None

    def _report(self, kind: str, now_s: float) -> None:
        beat = self._number()
        self._beats.append((beat, now_s))
        version = {"version": self._seen} if self._seen else {}
        self._send(
            kind,
            maxShardCount=self._max_shards,
            # Also those that the application still has to stop to work on.
            assignedShards=sorted(self._reported | (self._releasing or _NONE)),
            handoff=self._handoff,
            beat=beat,
            instance=self._instance,
            **version,
        )

    def _send(self, kind: str, **data: Any) -> None:
        self.outgoing.append({"type": kind, "data": {**self._names, **data}})

    def _number(self) -> int:
        self._next_beat += 1
        return self._next_beat - 1

    def _interval_s(self) -> float:
        return max(0.001, self._heartbeat_interval_s or self._timeout_s / 3)

    def _silent_at_s(self) -> float:
        return self._last_received_s + max(self._timeout_s / 2, self._interval_s() * 2)
