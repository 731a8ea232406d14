"""The pure parts beside the session: backoff, dialling, what is checked before dialling, and the errors."""

from __future__ import annotations

import copy
import pickle
from datetime import timedelta
from typing import Any, List, Optional

import pytest

import monolock
from monolock import _dial, _errors
from monolock._backoff import FIRST_CEILING_NS, Backoff
from monolock._clock import MILLISECOND as MS
from monolock._clock import SECOND
from monolock._config import Config, checked_lease_ms, checked_name, split_address
from monolock._errors import Loss, LossReason, LostError, MonolockError
from monolock._signal import Signal


def lost_by(code: int) -> MonolockError:
    return LostError("jobs", Loss(LossReason.SERVER_ERROR, code=code))


class TestBackoff:
    def test_b48_delays_double_from_100_ms_to_5_s(self) -> None:
        backoff = Backoff()
        delays = [(backoff.delay_ns(lost_by(0x02), 0, lambda: 1.0) or 0) // MS for _ in range(8)]
        assert delays == [100, 200, 400, 800, 1600, 3200, 5000, 5000]

    @pytest.mark.parametrize("code", [0x01, 0x02])
    def test_b47_the_jitter_is_full(self, code: int) -> None:
        assert Backoff().delay_ns(lost_by(code), 0, lambda: 0.0) == 0
        assert Backoff().delay_ns(lost_by(code), 0, lambda: 0.5) == 50 * MS

    def test_b47_a_shutdown_is_answered_at_once_but_only_once(self) -> None:
        backoff = Backoff()
        delays = [(backoff.delay_ns(lost_by(0x01), 0, lambda: 1.0) or 0) // MS for _ in range(4)]
        assert delays == [100, 100, 200, 400]

    def test_an_attempt_that_lasted_begins_anew(self) -> None:
        backoff = Backoff()
        for _ in range(8):
            backoff.delay_ns(lost_by(0x02), 0, lambda: 1.0)
        assert backoff.delay_ns(lost_by(0x02), 10_000 * SECOND, lambda: 1.0) == FIRST_CEILING_NS

    @pytest.mark.parametrize(
        "error",
        [
            _errors.refused("jobs", "a:1", Loss(LossReason.SERVER_ERROR, code=0x10)),
            _errors.refused("jobs", "a:1", Loss(LossReason.SERVER_ERROR, code=0x18)),
            lost_by(0x13),
            _errors.cancelled("jobs"),
            _errors.contended("jobs"),
            _errors.wait_timeout("jobs", 1),
            LostError("jobs", Loss(LossReason.MAX_HOLD)),
        ],
        ids=lambda error: f"{error.kind}-{error.code}",
    )
    def test_b48_what_is_final_is_not_tried_again(self, error: MonolockError) -> None:
        assert Backoff().delay_ns(error, 0, lambda: 1.0) is None


class TestDial:
    def dial(self, *addresses: str) -> _dial.Dial:
        config = Config(list(addresses), None, None, timedelta(seconds=8), None, None)
        return _dial.Dial(0, config, "jobs")

    def look_up(self, dial: _dial.Dial, now: int, *found: str) -> None:
        step = dial.next_step(now)
        assert isinstance(step, _dial.LookUp)
        dial.found(step, [(2, (host, 1)) for host in found])

    def connect(self, dial: _dial.Dial, now: int) -> _dial.Connect:
        step = dial.next_step(now)
        assert isinstance(step, _dial.Connect)
        return step

    def test_b46_each_candidate_has_an_even_share_of_what_is_left(self) -> None:
        dial = self.dial("one:1", "two:2")
        self.look_up(dial, 0, "10.0.0.1", "10.0.0.2")
        first = self.connect(dial, 0)
        assert first.budget_ns == 2 * SECOND
        dial.failed(first, None)
        # It used less than its share: the next one has the rest.
        second = self.connect(dial, 1 * SECOND)
        assert second.budget_ns == 3 * SECOND
        dial.failed(second, OSError("no"))
        self.look_up(dial, 4 * SECOND, "10.0.0.3")
        third = self.connect(dial, 4500 * MS)
        assert third.budget_ns == 3500 * MS
        dial.failed(third, Loss(LossReason.SERVER_ERROR, code=0x03))
        with pytest.raises(monolock.UnreachableError) as raised:
            dial.next_step(8 * SECOND)
        assert all(host in str(raised.value) for host in ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
        assert raised.value.code == 0x03

    def test_b46_a_name_without_addresses_leaves_the_turn_to_the_next(self) -> None:
        dial = self.dial("one:1", "two:2", "three:3")
        self.look_up(dial, 0)
        step = dial.next_step(0)
        assert isinstance(step, _dial.LookUp)
        dial.found(step, OSError("unknown"))
        self.look_up(dial, 0, "10.0.0.3")
        assert self.connect(dial, 0).budget_ns == 8 * SECOND

    @pytest.mark.parametrize(("code", "kind"), [(0x18, monolock.DeniedError), (0x10, monolock.InvalidError), (0xFF, monolock.InvalidError)])
    def test_a_client_error_ends_it(self, code: int, kind: Any) -> None:
        dial = self.dial("one:1", "two:2")
        self.look_up(dial, 0, "10.0.0.1")
        with pytest.raises(kind) as raised:
            dial.failed(self.connect(dial, 0), Loss(LossReason.SERVER_ERROR, code=code))
        assert raised.value.code == code

    @pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
    def test_an_address_is_not_looked_up(self, host: str) -> None:
        assert _dial.literal(host, 7) is not None

    def test_a_name_is(self) -> None:
        assert _dial.literal("localhost", 7) is None


class TestChecks:
    @pytest.mark.parametrize(
        "lease",
        [
            timedelta(0),
            timedelta(milliseconds=0.4),
            timedelta(milliseconds=-1),
            timedelta(milliseconds=2**32),
            timedelta(milliseconds=1),
            timedelta(milliseconds=19),
            timedelta(milliseconds=100.5),
            2,
            2.0,
            float("nan"),
            float("inf"),
            None,
        ],
        ids=repr,
    )
    def test_b29_b30_leases_that_are_refused(self, lease: Any) -> None:
        with pytest.raises(monolock.InvalidError) as raised:
            checked_lease_ms(lease)
        assert (raised.value.kind, raised.value.code) == ("invalid", None)
        # Nothing listens there: it is said before anything is dialled.
        with pytest.raises(monolock.InvalidError):
            monolock.Client("127.0.0.1:1").acquire("jobs", lease)

    @pytest.mark.parametrize("lease_ms", [20, 50, 100, 399, 400, 401, 2**32 - 1])
    def test_b29_b30_leases_that_are_exact(self, lease_ms: int) -> None:
        assert checked_lease_ms(timedelta(milliseconds=lease_ms)) == lease_ms

    @pytest.mark.parametrize("name", ["", "x" * 256, "é" * 128, "\ud800", b"jobs", None], ids=repr)
    def test_names_that_are_refused(self, name: Any) -> None:
        with pytest.raises(monolock.InvalidError):
            checked_name(name)

    @pytest.mark.parametrize("name", ["x", "x" * 255, " jobs ", "\0\n/*"], ids=repr)
    def test_names_that_are_taken_raw(self, name: str) -> None:
        assert checked_name(name) == name

    @pytest.mark.parametrize("address", ["", "host", "host:", ":7070", "host:0", "host:65536", "host:x", "::1:7", 7], ids=repr)
    def test_addresses_that_are_refused(self, address: Any) -> None:
        with pytest.raises(monolock.InvalidError):
            monolock.Client([address])

    def test_addresses(self) -> None:
        assert split_address("[::1]:7070") == ("::1", 7070)
        assert split_address("locks.example:65535") == ("locks.example", 65535)

    @pytest.mark.parametrize(
        "settings",
        [{"addresses": []}, {"connect_timeout": timedelta(0)}, {"max_hold": timedelta(0)}, {"max_hold": timedelta(-1)}, {"tls": True}],
        ids=repr,
    )
    def test_settings_that_are_refused(self, settings: Any) -> None:
        for client in (monolock.Client, monolock.AsyncClient):
            with pytest.raises(monolock.InvalidError):
                client(**{"addresses": "a:1", **settings})

    def test_a_wait_limit_is_not_negative(self) -> None:
        with pytest.raises(monolock.InvalidError):
            monolock.Client("127.0.0.1:1").acquire("jobs", timedelta(seconds=1), wait=timedelta(seconds=-1))


class TestErrors:
    def test_b49_seven_kinds(self) -> None:
        kinds = {error.kind for error in MonolockError.__subclasses__()}
        assert kinds == {"cancelled", "wait_timeout", "contended", "denied", "lost", "unreachable", "invalid"}
        assert kinds == set(monolock.ErrorKind)

    def test_an_own_error_stands_and_the_loss_is_joined(self) -> None:
        error, loss = KeyError("own"), Loss(LossReason.CLOSED)
        assert monolock.loss_of(error) is None
        _errors.join_loss(error, "jobs", loss)
        assert monolock.loss_of(error) == loss

    def test_they_survive_a_process_boundary(self) -> None:
        error = LostError("jobs", Loss(LossReason.SERVER_ERROR, code=2, detail="'x'"))
        for again in (pickle.loads(pickle.dumps(error)), copy.copy(error)):
            assert (str(again), again.loss, again.code) == (str(error), error.loss, 2)
        denied: monolock.MonolockError = pickle.loads(pickle.dumps(monolock.DeniedError("no", code=0x18)))
        assert denied.code == 0x18


class TestSignal:
    def test_before_and_after(self) -> None:
        signal: Signal[int] = Signal()
        told: List[Optional[int]] = []
        signal.subscribe(told.append)
        assert signal.set(1) and not signal.set(2)
        signal.subscribe(told.append)
        assert told == [1, 1] and signal.wait() == 1

    def test_closed(self) -> None:
        signal: Signal[int] = Signal()
        told: List[Optional[int]] = []
        signal.subscribe(told.append)
        signal.close()
        signal.set(1)
        assert told == [None] and signal.wait() is None

    def test_taken_back(self) -> None:
        signal: Signal[int] = Signal()
        told: List[Optional[int]] = []
        signal.subscribe(told.append)()
        signal.set(1)
        assert told == []

    def test_b08_a_callback_that_fails_harms_nobody(self, caplog: pytest.LogCaptureFixture) -> None:
        signal: Signal[int] = Signal()
        told: List[Optional[int]] = []
        signal.subscribe(lambda _value: 1 / 0)
        signal.subscribe(told.append)
        signal.set(1)
        assert told == [1] and "ZeroDivisionError" in caplog.text
