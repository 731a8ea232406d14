"""The one place that knows the rules of a session, as a client must keep them (``docs/protocol.md``, "What a client must do").

:class:`Session` is pure: it opens no socket, reads no clock and draws no randomness. Every input looks at the clock before it looks at
anything else, so a session that has given up can be revived by nothing; and it gives up no later than 0.8 leases after the sending of the
last confirmed frame, which is before the server does.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import List, Optional, Union

from . import _wire
from ._clock import MILLISECOND, SECOND
from ._errors import Loss, LossReason

#: The longest time between two heartbeats, however long the lease: middleboxes drop flows that are idle for a few minutes.
HEARTBEAT_CEILING_NS = 60 * SECOND

#: The shortest time between two heartbeats, where a quarter of the lease is not shorter still.
HEARTBEAT_FLOOR_NS = 100 * MILLISECOND


class Standing(Enum):
    """Where a session stands. It never goes back."""

    ASKING = "asking"
    QUEUED = "queued"
    HOLDING = "holding"
    OVER = "over"


@dataclass(frozen=True)
class Queued:
    """The server put the session into the queue."""


@dataclass(frozen=True)
class Granted:
    """The lock is this session's."""

    token: int


@dataclass(frozen=True)
class Refused:
    """The session ended before the server had taken its claim in."""

    loss: Loss


@dataclass(frozen=True)
class Lost:
    """The session ended in the queue or while it held the lock."""

    loss: Loss


Event = Union[Queued, Granted, Refused, Lost]


@dataclass(frozen=True)
class SessionConfig:
    """What a session is for."""

    name: str
    lease_ms: int
    #: How long a hold may last before it counts as lost, counted from the grant's receipt. ``None``: as long as it is confirmed.
    max_hold_ns: Optional[int] = None


class Session:
    """One claim on one lock, from ``ACQUIRE`` to its end. All instants are nanoseconds of one clock.

    A driver opens a connection, makes a ``Session``, and then, for as long as :meth:`next_deadline` says something: writes what
    :meth:`transmit` gives, hands what it reads to :meth:`receive`, and calls :meth:`tick` at the deadline. After every input,
    ``transmit`` may have something new. A stepping-back ``now`` counts as standing still.
    """

    def __init__(self, now: int, config: SessionConfig) -> None:
        self.config = config
        self.standing = Standing.ASKING
        self.token: Optional[int] = None
        self._now = now
        self._owed: Optional[bytes] = _wire.encode_acquire(config.name.encode(), config.lease_ms)
        self._owes_acquire = True
        #: When the one frame that waits for its reply was sent.
        self._unanswered: Optional[int] = None
        #: When the last confirmed frame was sent; until there is one, when ``ACQUIRE`` was.
        self._confirmed = now
        self._next_beat = now
        #: The smoothed round-trip time; ``None`` before the first sample.
        self._round_trip: Optional[int] = None
        self._hold_ends: Optional[int] = None
        self._undecoded = b""

    def receive(self, now: int, data: bytes) -> List[Event]:
        """Takes in bytes from the server, cut and glued as the network pleases."""
        events = self._settle(now)
        rest = self._undecoded + data
        self._undecoded = b""
        while self.standing is not Standing.OVER:
            try:
                decoded = _wire.decode_server(rest)
            except _wire.UnknownFrame as unknown:
                events += self._violated(str(unknown))
                break
            if decoded is None:
                self._undecoded = rest
                break
            frame, frame_bytes = decoded
            rest = rest[frame_bytes:]
            events += self._take_in(frame)
        return events + self._settle(now)

    def tick(self, now: int) -> List[Event]:
        """Lets time pass. Early it does nothing; when due, the deadline moves on or the session ends."""
        return self._settle(now)

    def disconnected(self, now: int, detail: str = "") -> List[Event]:
        """The connection is gone: the server closed it (no ``detail``), or reading or writing failed."""
        return self._settle(now) + self._end(Loss(LossReason.CLOSED, detail=detail))

    def transmit(self, now: int) -> bytes:
        """The bytes that are to be written now, if any, and counts ``now`` as the moment of their sending: take the time before the
        system call, not after it."""
        self._now = max(self._now, now)
        ends = self.gives_up_at()
        if self._owed is None or ends is None or self._now >= ends:
            return b""
        frame, self._owed = self._owed, None
        if self._owes_acquire:
            self._owes_acquire = False
            self._confirmed = self._now
        self._unanswered = self._now
        return frame

    def next_deadline(self) -> Optional[int]:
        """When :meth:`tick` is to be called next; ``None`` when the session is over."""
        ends = self.gives_up_at()
        if ends is None:
            return None
        return min(ends, self._next_beat) if self._may_beat() else ends

    def gives_up_at(self) -> Optional[int]:
        """When the session ends unless something is confirmed before: 0.8 leases after the sending of the last confirmed frame, or
        at the end of ``max_hold``. From this instant on the lock must not be believed in. ``None`` when the session is over."""
        if self.standing is Standing.OVER:
            return None
        unconfirmed = self._unconfirmed_at()
        return unconfirmed if self._hold_ends is None else min(unconfirmed, self._hold_ends)

    def hold_ends_at(self) -> Optional[int]:
        """When ``max_hold`` ends the hold; ``None`` without a hold or without that limit."""
        return self._hold_ends

    def _may_beat(self) -> bool:
        """At most one frame is unanswered at a time."""
        return self._owed is None and self._unanswered is None

    def _unconfirmed_at(self) -> int:
        return self._confirmed + self.config.lease_ms * MILLISECOND * 4 // 5

    def _settle(self, now: int) -> List[Event]:
        """Does what is due by ``now``."""
        self._now = max(self._now, now)
        ends = self.gives_up_at()
        if ends is None:
            return []
        if self._now >= ends:
            timed_out = ends == self._unconfirmed_at()
            return self._end(Loss(LossReason.TIMEOUT if timed_out else LossReason.MAX_HOLD))
        if self._may_beat() and self._now >= self._next_beat:
            self._owed = _wire.HEARTBEAT
        return []

    def _take_in(self, frame: _wire.ServerFrame) -> List[Event]:
        if isinstance(frame, _wire.ServerError):
            reason = repr(frame.reason.decode("utf-8", "replace"))
            return self._end(Loss(LossReason.SERVER_ERROR, code=frame.code, detail=reason))
        if self.standing is Standing.ASKING:
            return self._confirm() or self._answered(frame)
        if self.standing is Standing.QUEUED:
            # The push answers nothing, so it confirms nothing. A heartbeat under way is answered by the next frame.
            return self._grant(frame.token) if isinstance(frame, _wire.Acquired) else self._confirm()
        if isinstance(frame, _wire.Waiting):
            return self._violated("WAITING after ACQUIRED")
        if frame.token != self.token:
            return self._violated(f"the token changed from {self.token} to {frame.token}")
        return self._confirm()

    def _answered(self, frame: Union[_wire.Waiting, _wire.Acquired]) -> List[Event]:
        """The first answer to ``ACQUIRE``."""
        if isinstance(frame, _wire.Acquired):
            return self._grant(frame.token)
        self.standing = Standing.QUEUED
        return [Queued()]

    def _confirm(self) -> List[Event]:
        """The frame that was under way has its reply; a reply to nothing ends the session."""
        sent, self._unanswered = self._unanswered, None
        if sent is None:
            return self._violated("a reply to nothing")
        self._confirmed = sent
        sample = self._now - sent
        self._round_trip = sample if self._round_trip is None else (sample + 4 * self._round_trip) // 5
        interval = heartbeat_interval_ns(self.config.lease_ms, self._round_trip)
        self._next_beat = self._now if interval is None else sent + interval
        return []

    def _grant(self, token: int) -> List[Event]:
        self.standing, self.token = Standing.HOLDING, token
        if self.config.max_hold_ns is not None:
            self._hold_ends = self._now + self.config.max_hold_ns
        return [Granted(token)]

    def _violated(self, violation: str) -> List[Event]:
        return self._end(Loss(LossReason.PROTOCOL_VIOLATION, detail=violation))

    def _end(self, loss: Loss) -> List[Event]:
        standing, self.standing = self.standing, Standing.OVER
        self._owed = None
        if standing is Standing.OVER:
            return []
        return [Refused(loss) if standing is Standing.ASKING else Lost(loss)]


def heartbeat_interval_ns(lease_ms: int, round_trip_ns: int) -> Optional[int]:
    """How long after the sending of the last frame the next heartbeat goes out; ``None``: as soon as its answer is in."""
    base = lease_ms * MILLISECOND // 4
    interval = base - 2 * round_trip_ns
    if interval <= 0:
        return None
    return min(max(interval, min(HEARTBEAT_FLOOR_NS, base)), HEARTBEAT_CEILING_NS)
