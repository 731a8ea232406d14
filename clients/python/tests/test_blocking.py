"""The blocking client against a scripted server."""

from __future__ import annotations

import gc
import socket
import threading
import time
from contextlib import closing
from datetime import timedelta
from typing import Any, List, Optional

import pytest

import monolock
from monolock import Cancel, Client, Loss, LossReason
from patience import PATIENCE, PATIENCE_S, Clock, patient_client
from scripted import WAITING, Background, Connection, Everybody, Scripted, acquired, error

#: Nothing is due for a minute.
LEASE = timedelta(minutes=10)
#: For a clock that is stepped: the timers that find it out are in real time.
SHORT = timedelta(milliseconds=100)


def session_threads() -> List[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name.startswith("monolock")]


def wait_until(condition: Any) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, "it did not come about"
        time.sleep(0.005)


def beat(connection: Connection, clock: Clock) -> None:
    """Ten heartbeats of a hold with the short lease, a quarter of it apart."""
    for _ in range(10):
        clock.step(SHORT / 4)
        connection.read_heartbeat()
        connection.send(acquired(41))


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Any:
    yield
    gc.collect()
    wait_until(lambda: not session_threads())


class TestHolding:
    def test_token_and_release(self, scripted: Scripted) -> None:
        def other_side() -> None:
            connection = scripted.accept()
            assert connection.read_acquire() == (600_000, "jobs")
            connection.send(acquired(2**63 + 1))
            assert connection.read_to_end() == b""

        with Background(other_side):
            with patient_client(scripted.address).lock("jobs", lease=LEASE) as lock:
                assert (lock.name, lock.token, lock.lease) == ("jobs", 2**63 + 1, LEASE)
                assert lock.is_held() and not lock.lost.is_set() and lock.loss is None
            assert not lock.is_held() and lock.loss is None and not lock.lost.is_set()

    def test_b09_release_twice_and_hold_again(self, scripted: Scripted) -> None:
        client = patient_client(scripted.address)
        for token in (41, 42):
            with Background(lambda: scripted.grant(token).read_to_end()):
                lock = client.acquire("jobs", LEASE)
                lock.release()
                lock.release()
            assert lock.token == token

    def test_b14_heartbeats_run_for_the_second_hold_as_for_the_first(self, scripted: Scripted) -> None:
        clock = Clock()
        client = patient_client(scripted.address, _clock=clock)
        with Background(lambda: scripted.grant().close()):
            first = client.acquire("jobs", SHORT)
            assert first.lost.wait(PATIENCE)
        with Background(scripted.grant):
            second = client.acquire("jobs", SHORT)
        beat(scripted.connections[-1], clock)
        assert second.is_held()
        second.release()

    def test_lock_that_is_forgotten_is_released(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().read_to_end()):
            lock: Optional[monolock.Lock] = patient_client(scripted.address).acquire("jobs", LEASE)
            with pytest.warns(ResourceWarning, match="never released"):
                del lock
                gc.collect()

    def test_b27_a_claim_behind_ones_own(self, scripted: Scripted) -> None:
        client = patient_client(scripted.address)
        with Background(scripted.grant):
            lock = client.acquire("jobs", LEASE)
        assert (client.claims("jobs"), client.claims("other")) == (1, 0)
        with Everybody(scripted, Connection.queue), pytest.raises(monolock.WaitTimeoutError):
            client.acquire("jobs", LEASE, wait=timedelta(milliseconds=50))
        assert client.claims("jobs") == 1
        lock.release()
        lock.release()
        assert client.claims("jobs") == 0


class TestLosing:
    @pytest.mark.parametrize(
        ("end", "passes", "loss"),
        [
            (lambda connection: connection.close(), 0, Loss(LossReason.CLOSED)),
            (lambda connection: connection.send(error(0x02, "kicked")), 0, Loss(LossReason.SERVER_ERROR, 2, "'kicked'")),
            (lambda connection: connection.send(WAITING), 0, Loss(LossReason.PROTOCOL_VIOLATION, None, "WAITING after ACQUIRED")),
            (lambda connection: None, 0.8, Loss(LossReason.TIMEOUT)),
        ],
        ids=["closed", "server_error", "protocol_violation", "timeout"],
    )
    def test_b08_reasons(self, scripted: Scripted, end: Any, passes: float, loss: Loss) -> None:
        told: List[Loss] = []
        clock = Clock()
        with Background(lambda: end(scripted.grant())):
            lock = patient_client(scripted.address, _clock=clock).acquire("jobs", SHORT)
            lock.on_lost(told.append)
            clock.step(SHORT * passes)
            assert lock.lost.wait(PATIENCE) and lock.stop.wait(PATIENCE)
        lock.on_lost(told.append)
        assert (lock.loss, lock.is_held()) == (loss, False)
        wait_until(lambda: told == [loss, loss])
        lock.release()
        assert lock.loss == loss, "what is lost stays lost"

    def test_reset(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().reset()):
            lock = patient_client(scripted.address).acquire("jobs", LEASE)
            assert lock.lost.wait(PATIENCE)
        assert lock.loss is not None and lock.loss.reason is LossReason.CLOSED

    def test_b08_many_threads_wait(self, scripted: Scripted) -> None:
        go = threading.Event()

        def other_side() -> None:
            connection = scripted.grant()
            go.wait(PATIENCE_S)
            connection.close()

        with Background(other_side):
            lock = patient_client(scripted.address).acquire("jobs", LEASE)
            told: List[bool] = []
            waiting = [threading.Thread(target=lambda: told.append(lock.lost.wait(PATIENCE))) for _ in range(8)]
            for thread in waiting:
                thread.start()
            go.set()
            for thread in waiting:
                thread.join()
        assert told == [True] * 8

    def test_a_release_is_no_loss(self, scripted: Scripted) -> None:
        told: List[Loss] = []
        with Background(scripted.grant):
            lock = patient_client(scripted.address).acquire("jobs", LEASE)
        lock.on_lost(told.append)
        waited: List[bool] = []
        waiting = threading.Thread(target=lambda: waited.append(lock.lost.wait()))
        waiting.start()
        lock.release()
        waiting.join(PATIENCE_S)
        assert waited == [False] and told == []

    def test_b03_the_clock_says_no_before_anything_is_read(self, scripted: Scripted) -> None:
        clock = Clock()
        with Background(scripted.grant):
            lock = patient_client(scripted.address, _clock=clock).acquire("jobs", LEASE)
        assert lock.is_held()
        clock.step(LEASE)
        assert not lock.is_held() and lock.lost.is_set()
        clock.step(-LEASE)
        assert not lock.is_held() and lock.loss == Loss(LossReason.TIMEOUT)

    def test_b15_max_hold(self, scripted: Scripted) -> None:
        client = patient_client(scripted.address, max_hold=timedelta(milliseconds=200))
        with Background(lambda: scripted.grant().serve(acquired(41))):
            lock = client.acquire("jobs", LEASE)
            assert lock.lost.wait(PATIENCE)
        assert lock.loss == Loss(LossReason.MAX_HOLD)

    def test_b11_the_with_form(self, scripted: Scripted) -> None:
        client = patient_client(scripted.address)
        with Background(lambda: scripted.grant().close()):
            with pytest.raises(monolock.LostError) as lost:
                with client.lock("jobs", LEASE) as lock:
                    lock.lost.wait(PATIENCE)
        assert monolock.loss_of(lost.value) == Loss(LossReason.CLOSED)
        with Background(lambda: scripted.grant().close()):
            with pytest.raises(KeyError) as own:
                with client.lock("jobs", LEASE) as lock:
                    lock.lost.wait(PATIENCE)
                    raise KeyError("own")
        assert monolock.loss_of(own.value) == Loss(LossReason.CLOSED)
        with Background(lambda: scripted.grant().read_to_end()):
            with pytest.raises(KeyError) as own:
                with client.lock("jobs", LEASE):
                    raise KeyError("own")
        assert monolock.loss_of(own.value) is None


class TestAcquiring:
    def test_try(self, scripted: Scripted) -> None:
        client = patient_client(scripted.address)
        with Background(lambda: scripted.queue().read_to_end()), pytest.raises(monolock.ContendedError):
            client.try_acquire("jobs", LEASE)
        with Background(scripted.grant):
            client.try_acquire("jobs", LEASE).release()

    def test_b12_a_wait_limit_and_the_body_never_runs(self, scripted: Scripted) -> None:
        client, wait = patient_client(scripted.address), timedelta(milliseconds=100)
        with Everybody(scripted, lambda one: one.queue().read_to_end()), pytest.raises(monolock.WaitTimeoutError):
            with client.lock("jobs", LEASE, wait=wait):
                pytest.fail("it was not obtained")
        with Everybody(scripted, lambda one: one.queue().read_to_end()), pytest.raises(monolock.WaitTimeoutError):
            client.do("jobs", LEASE, lambda _held: pytest.fail("it was not obtained"), wait=wait)
        with Everybody(scripted, Connection.close), pytest.raises(monolock.WaitTimeoutError):
            client.acquire("jobs", LEASE, wait=wait, retry=True)

    def test_promoted(self, scripted: Scripted) -> None:
        def other_side() -> Connection:
            connection = scripted.queue()
            connection.send(acquired(41))
            return connection

        with Background(other_side):
            patient_client(scripted.address).acquire("jobs", LEASE).release()

    def test_lost_in_the_queue(self, scripted: Scripted) -> None:
        clock = Clock()
        for end, code in [(lambda c: c.close(), None), (lambda c: c.send(error(0x02)), 2), (lambda c: clock.step(SHORT), None)]:
            with Background(lambda: end(scripted.accept().queue_late(clock))), pytest.raises(monolock.LostError) as lost:
                patient_client(scripted.address, _clock=clock).acquire("jobs", SHORT, wait=PATIENCE)
            assert lost.value.code == code

    @pytest.mark.parametrize(("code", "kind"), [(0x18, "denied"), (0x19, "invalid"), (0x10, "invalid"), (0x0F, "unreachable")])
    def test_refused(self, scripted: Scripted, code: int, kind: str) -> None:
        def other_side() -> None:
            connection = scripted.accept()
            connection.read_acquire()
            connection.send(error(code, "a\x1b[31m"))

        with Background(other_side), pytest.raises(monolock.MonolockError) as refused:
            # With retry too, where the code is final; else one attempt is enough to tell the kind.
            patient_client(scripted.address).acquire("jobs", LEASE, retry=code >= 0x10)
        assert (refused.value.kind, refused.value.code) == (kind, code)
        assert str(refused.value).isprintable()

    def test_unreachable(self, scripted: Scripted) -> None:
        with socket.socket() as nobody:
            # Bound, so that it is nobody else's; it does not listen.
            nobody.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % nobody.getsockname()[1]
            with pytest.raises(monolock.UnreachableError, match=address):
                patient_client(address).acquire("jobs", LEASE)
        with Background(lambda: scripted.accept().close()), pytest.raises(monolock.UnreachableError):
            patient_client(scripted.address).acquire("jobs", LEASE)
        for timeout in (timedelta(milliseconds=50), timedelta(microseconds=1)):
            with pytest.raises(monolock.UnreachableError, match="no answer"):
                Client(scripted.address, connect_timeout=timeout).acquire("jobs", LEASE)

    def test_b46_a_mute_address_and_one_that_serves(self, scripted: Scripted) -> None:
        clock, timeout = Clock(), timedelta(milliseconds=200)

        def other_side() -> None:
            mute.accept().read_acquire()
            clock.step(timeout / 2)
            scripted.grant()

        with closing(Scripted()) as mute, Background(other_side):
            addresses = [mute.address, "localhost:" + scripted.address.split(":")[1]]
            Client(addresses, connect_timeout=timeout, _clock=clock).acquire("jobs", LEASE, wait=PATIENCE).release()

    def test_retry(self, scripted: Scripted) -> None:
        def other_side() -> None:
            scripted.accept().close()
            scripted.queue().send(error(0x01))
            scripted.queue().reset()
            scripted.grant(44)

        with Background(other_side):
            lock = patient_client(scripted.address).acquire("jobs", LEASE, retry=True)
        assert lock.token == 44
        lock.release()


class TestCancelling:
    @pytest.mark.parametrize("state", ["mute", "queued", "retrying"])
    def test_b50_back_at_once(self, scripted: Scripted, state: str) -> None:
        cancel = Cancel()

        def other_side() -> None:
            if state == "retrying":
                scripted.accept().close()
            elif state == "queued":
                scripted.queue()
            else:
                scripted.accept()
            cancel.cancel()

        with Background(other_side), pytest.raises(monolock.AcquireCancelledError):
            patient_client(scripted.address).acquire("jobs", LEASE, cancel=cancel, retry=state == "retrying")
        with pytest.raises(monolock.AcquireCancelledError):
            patient_client(scripted.address).acquire("jobs", LEASE, cancel=cancel)

    def test_b10_cancelling_asks_the_work_to_stop_and_keeps_the_lock(self, scripted: Scripted) -> None:
        cancel, clock = Cancel(), Clock()

        def work(held: monolock.Held) -> str:
            assert held.token == 41 and not held.stop.is_set()
            cancel.cancel()
            assert held.stop.wait(PATIENCE)
            beat(scripted.connections[-1], clock)
            assert held.is_held()
            return "wound up"

        with Background(scripted.grant):
            assert patient_client(scripted.address, _clock=clock).do("jobs", SHORT, work, cancel=cancel) == "wound up"

    def test_b50_a_thousand_rounds_leave_nothing(self, scripted: Scripted) -> None:
        client = patient_client(["localhost:" + scripted.address.split(":")[1], scripted.address])
        stop = threading.Event()

        def other_side() -> None:
            for number in range(10**6):
                try:
                    connection = scripted.accept()
                except OSError:
                    return
                if stop.is_set():
                    return
                # Mute, queued or granted.
                try:
                    connection.send([b"", WAITING, acquired(number + 1)][number % 3])
                except OSError:
                    pass
                scripted.connections.pop().close() if number % 2 else None
                while len(scripted.connections) > 20:
                    scripted.connections.pop(0).close()

        with Background(other_side):
            for number in range(1000):
                cancel = Cancel()
                timer = threading.Timer(number % 7 / 2000, cancel.cancel)
                timer.start()
                try:
                    client.acquire("jobs", LEASE, cancel=cancel).release()
                except monolock.MonolockError:
                    pass
                timer.join()
            stop.set()
            scripted.visit()
        wait_until(lambda: not session_threads())
        assert client.claims("jobs") == 0
        gc.collect()
        assert not [one for one in gc.get_objects() if isinstance(one, monolock._blocking._Connection)]


class TestWork:
    def test_the_result(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().read_to_end()):
            assert patient_client(scripted.address).do("jobs", LEASE, lambda held: held.token) == 41

    def test_b11_work_that_fails_under_a_lost_lock(self, scripted: Scripted) -> None:
        def work(held: monolock.Held) -> None:
            assert held.stop.wait(PATIENCE)
            raise ZeroDivisionError

        with Background(lambda: scripted.grant().close()), pytest.raises(ZeroDivisionError) as own:
            patient_client(scripted.address).do("jobs", LEASE, work)
        assert monolock.loss_of(own.value) == Loss(LossReason.CLOSED)

    def test_work_that_succeeds_under_a_lost_lock(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().close()), pytest.raises(monolock.LostError):
            patient_client(scripted.address).do("jobs", LEASE, lambda held: held.lost.wait(PATIENCE))

    def test_it_runs_at_most_once(self, scripted: Scripted) -> None:
        runs: List[int] = []
        with Background(lambda: scripted.grant().close()), pytest.raises(monolock.LostError):
            patient_client(scripted.address).do("jobs", LEASE, lambda held: runs.append(held.lost.wait(PATIENCE)), retry=True)
        assert runs == [True]
