"""The rules of a session, on a clock that the tests set."""

from __future__ import annotations

import heapq
import itertools
import json
import os
import random
from pathlib import Path
from typing import Any, Dict, List, Optional

import pytest

from monolock import _wire
from monolock._clock import MILLISECOND as MS
from monolock._clock import SECOND
from monolock._errors import Loss, LossReason
from monolock._session import Event, Granted, Lost, Queued, Refused, Session, SessionConfig, Standing, heartbeat_interval_ns
from scripted import WAITING, acquired, error

VECTORS: Dict[str, List[Dict[str, Any]]] = json.loads(
    (Path(__file__).resolve().parents[3] / "testing" / "conformance" / "vectors.json").read_text()
)


def session(lease_ms: int = 10_000, max_hold_ns: Optional[int] = None) -> Session:
    """A session that has sent its ACQUIRE at 0."""
    made = Session(0, SessionConfig("jobs", lease_ms, max_hold_ns))
    assert made.transmit(0)[0] == 0x01
    return made


def holding(lease_ms: int = 10_000, max_hold_ns: Optional[int] = None) -> Session:
    made = session(lease_ms, max_hold_ns)
    assert made.receive(0, acquired(41)) == [Granted(41)]
    return made


def beat(held: Session, at: int) -> None:
    held.tick(at)
    assert held.transmit(at) == b"\x02"


def lost(reason: LossReason, **fields: Any) -> List[Event]:
    return [Lost(Loss(reason, **fields))]


def named(group: str) -> Any:
    return pytest.mark.parametrize("vector", VECTORS[group], ids=[v.get("name", str(v.get("code"))) for v in VECTORS[group]])


def shown(frame: _wire.ServerFrame) -> Dict[str, Any]:
    if isinstance(frame, _wire.Waiting):
        return {"type": "waiting"}
    if isinstance(frame, _wire.Acquired):
        return {"type": "acquired", "token": str(frame.token)}
    return {"type": "error", "code": frame.code, "reason": frame.reason.decode("utf-8", "replace")}


class TestVectors:
    @named("client")
    def test_client_frames(self, vector: Dict[str, Any]) -> None:
        frame = vector["frame"]
        made = _wire.HEARTBEAT
        if frame["type"] == "acquire":
            made = _wire.encode_acquire(frame["name"].encode(), frame["lease_ms"])
        assert made.hex() == vector["hex"]

    @named("server")
    def test_server_frames(self, vector: Dict[str, Any]) -> None:
        data = bytes.fromhex(vector["hex"])
        decoded = _wire.decode_server(data + b"\x11")
        assert decoded is not None
        assert (shown(decoded[0]), decoded[1]) == (vector["frame"], len(data))
        assert all(_wire.decode_server(data[:cut]) is None for cut in range(len(data)))

    @named("server_invalid")
    def test_what_no_server_may_send(self, vector: Dict[str, Any]) -> None:
        with pytest.raises(_wire.UnknownFrame):
            _wire.decode_server(bytes.fromhex(vector["hex"]))

    @named("server_streams")
    def test_streams(self, vector: Dict[str, Any]) -> None:
        rest, frames = bytes.fromhex(vector["hex"]), []
        while rest:
            decoded = _wire.decode_server(rest)
            assert decoded is not None
            frames.append(shown(decoded[0]))
            rest = rest[decoded[1] :]
        assert frames == vector["frames"]

    @named("classes")
    def test_the_range_decides(self, vector: Dict[str, Any]) -> None:
        assert _wire.is_client_error(vector["code"]) == (vector["class"] == "client_error")


class TestHeartbeats:
    @pytest.mark.parametrize(
        ("lease_ms", "round_trip_ms", "interval_ms"),
        [
            (10_000, 0, 2500),
            (10_000, 100, 2300),
            (10_000, 1240, 100),
            (10_000, 1250, None),
            (10_000, 9000, None),
            (400, 10, 100),
            (100, 10, 25),
            (50, 0, 12.5),
            (20, 2, 5),
            (1_800_000, 0, 60_000),
            (2**32 - 1, 10, 60_000),
        ],
    )
    def test_b29_b45_the_interval(self, lease_ms: int, round_trip_ms: int, interval_ms: Optional[float]) -> None:
        expected = None if interval_ms is None else int(interval_ms * MS)
        assert heartbeat_interval_ns(lease_ms, round_trip_ms * MS) == expected

    def test_they_count_from_send_to_send(self) -> None:
        made = session()
        made.receive(200 * MS, acquired(41))
        assert made.next_deadline() == 2100 * MS, "2500 less twice the round trip, from the sending of ACQUIRE"

    def test_the_round_trip_is_smoothed(self) -> None:
        made = session()
        made.receive(100 * MS, acquired(41))
        beat(made, 2300 * MS)
        made.receive(2900 * MS, acquired(41))
        # 0.2 * 600 + 0.8 * 100 = 200
        assert made.next_deadline() == 2300 * MS + 2100 * MS

    def test_one_is_unanswered_at_most(self) -> None:
        held = holding()
        beat(held, 2500 * MS)
        assert held.tick(7000 * MS) == []
        assert held.transmit(7000 * MS) == b""
        assert held.next_deadline() == 8000 * MS

    def test_a_slow_answer_is_followed_at_once(self) -> None:
        made = session()
        made.receive(2000 * MS, WAITING)
        assert made.transmit(2000 * MS) == b"\x02"

    def test_early_does_nothing(self) -> None:
        held = holding()
        assert held.tick(2499 * MS) == [] and held.transmit(2499 * MS) == b""

    def test_b07_hours_of_prompt_answers(self) -> None:
        held = holding(lease_ms=50)
        for _ in range(100_000):
            due = held.next_deadline()
            assert due is not None
            beat(held, due)
            assert held.receive(due + MS, acquired(41)) == []
        assert held.standing is Standing.HOLDING


class TestGivingUp:
    def test_b02_from_the_sending_of_the_last_confirmed_frame(self) -> None:
        held = holding()
        beat(held, 2500 * MS)
        held.receive(5500 * MS, acquired(41))
        assert held.gives_up_at() == 10_500 * MS
        beat(held, 5500 * MS)
        assert held.tick(10_499 * MS) == []
        assert held.tick(10_500 * MS) == lost(LossReason.TIMEOUT)

    def test_b02b_the_push_confirms_nothing(self) -> None:
        made = session()
        made.receive(0, WAITING)
        beat(made, 2500 * MS)
        assert made.receive(2600 * MS, acquired(41)) == [Granted(41)]
        assert made.gives_up_at() == 8000 * MS, "from the sending of ACQUIRE"
        assert made.transmit(2600 * MS) == b"", "the heartbeat is still unanswered"
        made.receive(2700 * MS, acquired(41))
        assert made.gives_up_at() == 10_500 * MS

    def test_b03_b04_the_clock_is_looked_at_before_the_socket(self) -> None:
        held = holding()
        beat(held, 2500 * MS)
        # Had it been read in time, this answer would have carried the hold to 10.5 s.
        assert held.receive(8000 * MS, acquired(41)) == lost(LossReason.TIMEOUT)
        assert held.receive(600 * SECOND, acquired(41)) == []
        assert held.transmit(600 * SECOND) == b""

    def test_the_handshake_too(self) -> None:
        assert session().tick(8000 * MS) == [Refused(Loss(LossReason.TIMEOUT))]
        assert session().receive(8000 * MS, acquired(41)) == [Refused(Loss(LossReason.TIMEOUT))]

    def test_a_frame_is_not_sent_too_late(self) -> None:
        held = holding()
        held.tick(2500 * MS)
        assert held.transmit(8000 * MS) == b""

    def test_b19_in_the_queue_too(self) -> None:
        made = session()
        assert made.receive(0, WAITING) == [Queued()]
        beat(made, 2500 * MS)
        assert made.tick(8000 * MS) == lost(LossReason.TIMEOUT)

    def test_b15_max_hold_counts_from_the_grant(self) -> None:
        made = session(max_hold_ns=3 * SECOND)
        made.receive(0, WAITING)
        beat(made, 2500 * MS)
        made.receive(2600 * MS, WAITING + acquired(41))
        beat(made, 5000 * MS)
        made.receive(5000 * MS, acquired(41))
        assert made.gives_up_at() == 5600 * MS
        assert made.tick(5600 * MS) == lost(LossReason.MAX_HOLD)

    def test_time_that_steps_back_stands_still(self) -> None:
        held = holding()
        held.tick(3 * SECOND)
        assert held.transmit(2 * SECOND) == b"\x02"
        held.receive(1 * SECOND, acquired(41))
        assert held.gives_up_at() == 11 * SECOND


class TestViolations:
    @pytest.mark.parametrize(
        "data",
        [WAITING, acquired(42), acquired(41), b"\x7f", b"\x12" + bytes(8)],
        ids=["waiting after acquired", "another token", "a reply to nothing", "unknown byte", "token 0"],
    )
    def test_they_lose_the_lock(self, data: bytes) -> None:
        (event,) = holding().receive(1, data)
        assert isinstance(event, Lost) and event.loss.reason is LossReason.PROTOCOL_VIOLATION

    def test_a_second_waiting_answers_nothing(self) -> None:
        (event,) = session().receive(0, WAITING + WAITING)[1:]
        assert isinstance(event, Lost) and event.loss.reason is LossReason.PROTOCOL_VIOLATION

    def test_before_the_first_answer(self) -> None:
        (event,) = session().receive(0, b"\x7f")
        assert isinstance(event, Refused) and event.loss.reason is LossReason.PROTOCOL_VIOLATION

    def test_nothing_after_the_end(self) -> None:
        made = session()
        assert len(made.receive(0, error(0x18) + acquired(41) + b"\x7f")) == 1
        assert made.next_deadline() is None


class TestErrors:
    def test_before_and_after_the_first_answer(self) -> None:
        (event,) = session().receive(0, error(0x18, "no"))
        assert event == Refused(Loss(LossReason.SERVER_ERROR, code=0x18, detail="'no'"))
        (event,) = holding().receive(0, error(0x02, "kicked"))
        assert event == Lost(Loss(LossReason.SERVER_ERROR, code=0x02, detail="'kicked'"))

    def test_a_reason_is_safe_to_print(self) -> None:
        (event,) = holding().receive(0, error(0x02, "a\n\x1b[31m\u202eb"))
        assert isinstance(event, Lost) and str(event.loss).isprintable()

    def test_a_grant_and_its_end_in_one_packet(self) -> None:
        events = session().receive(0, acquired(41) + error(0x01))
        assert [type(event) for event in events] == [Granted, Lost]

    def test_disconnected(self) -> None:
        assert holding().disconnected(1) == lost(LossReason.CLOSED)
        assert session().disconnected(1) == [Refused(Loss(LossReason.CLOSED))]
        assert holding().disconnected(9 * SECOND) == lost(LossReason.TIMEOUT), "the clock comes first"


def test_b38_every_stream_cut_at_every_place() -> None:
    stream = WAITING + WAITING + acquired(2**63 + 5) + acquired(2**63 + 5) + error(0x02, "ä" * 100)

    def with_heartbeats(cuts: List[int]) -> List[Event]:
        made = session()
        told: List[Event] = []
        edges = [0, *cuts, len(stream)]
        # The heartbeats that the second WAITING and the second ACQUIRED answer.
        beats = {1: 2500 * MS, 11: 5000 * MS}
        for start, end in zip(edges, edges[1:]):
            for position in range(start, end):
                if position in beats:
                    made.tick(beats[position])
                    made.transmit(beats[position])
            told += made.receive(0, stream[start:end])
        return told

    at_frames = with_heartbeats([1, 2, 11, 20])
    assert [type(event) for event in at_frames] == [Queued, Granted, Lost]
    for cut in range(1, len(stream)):
        assert with_heartbeats(sorted({1, 2, 11, 20, cut})) == at_frames, cut
    assert with_heartbeats(list(range(1, len(stream)))) == at_frames


SEED = int(os.environ.get("MONOLOCK_SEED", random.SystemRandom().randrange(2**32)))


@pytest.mark.parametrize("number", range(300))
def test_b01_b02_the_client_knows_before_the_server(number: int) -> None:
    """Random delays both ways, then darkness in one direction or in both: whenever the server gives the lock away, the client has
    given it up."""
    seed = SEED + number
    print(f"repeat with MONOLOCK_SEED={seed}")
    world = World(random.Random(seed))
    world.run()
    assert world.expired_at is not None
    assert not world.believes(world.expired_at), f"MONOLOCK_SEED={seed}"


class World:
    """One client machine, one server that keeps the lease, and a network that delays in order and goes dark."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.lease_ms = chance.choice([20, 50, 100, 400, 1000, 10_000, 600_000])
        lease = self.lease_ms * MS
        self.session = Session(0, SessionConfig("jobs", self.lease_ms))
        self.longest_delay = int(lease * chance.choice([0.001, 0.05, 0.2, 0.35]))
        dark = chance.randrange(lease * 5)
        self.dark_up, self.dark_down = chance.choice([(dark, dark), (dark, 10**18), (10**18, dark)])
        self.promoted_at = chance.choice([0, chance.randrange(lease * 3)])
        self.queue: List[Any] = []
        self.order = itertools.count()
        self.arrival = {"up": 0, "down": 0}
        self.last_seen: Optional[int] = None
        self.expired_at: Optional[int] = None
        self.granted = False

    def run(self) -> None:
        self.send_client(0)
        for _ in range(100_000):
            due = self.session.next_deadline()
            if due is not None and (not self.queue or due <= self.queue[0][0]):
                # Timers fire late, by up to a tenth of the lease.
                self.at(due + self.chance.randrange(self.lease_ms * MS // 10), self.tick)
            if self.expired_at is not None or not self.queue:
                break
            now, _number, action, argument = heapq.heappop(self.queue)
            if self.last_seen is not None and now >= self.last_seen + self.lease_ms * MS:
                self.expired_at = self.last_seen + self.lease_ms * MS
                break
            action(now, argument)
        if self.expired_at is None:
            assert self.last_seen is not None or self.session.standing is Standing.OVER
            self.expired_at = (self.last_seen or 0) + self.lease_ms * MS

    def believes(self, now: int) -> bool:
        until = self.session.gives_up_at()
        return until is not None and now < until

    def at(self, when: int, action: Any, argument: Any = None) -> None:
        heapq.heappush(self.queue, (when, next(self.order), action, argument))

    def carry(self, way: str, now: int, action: Any, data: Any) -> None:
        if now >= (self.dark_up if way == "up" else self.dark_down):
            return
        self.arrival[way] = max(self.arrival[way], now + 1 + self.chance.randrange(self.longest_delay + 1))
        self.at(self.arrival[way], action, data)

    def tick(self, now: int, _argument: Any) -> None:
        self.session.tick(now)
        self.send_client(now)

    def send_client(self, now: int) -> None:
        frame = self.session.transmit(now)
        if frame:
            self.carry("up", now, self.at_server, frame)

    def at_server(self, now: int, frame: bytes) -> None:
        if self.last_seen is None and not self.granted:
            self.granted = self.promoted_at == 0
            if not self.granted:
                self.at(max(now, self.promoted_at), self.promote)
        self.last_seen = now
        self.carry("down", now, self.at_client, acquired(41) if self.granted else WAITING)

    def promote(self, now: int, _argument: Any) -> None:
        self.granted = True
        self.carry("down", now, self.at_client, acquired(41))

    def at_client(self, now: int, frame: bytes) -> None:
        for event in self.session.receive(now, frame):
            assert not isinstance(event, Lost) or event.loss.reason is LossReason.TIMEOUT, event
        self.send_client(now)
