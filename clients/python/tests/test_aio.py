"""The asyncio client against a scripted server."""

from __future__ import annotations

import asyncio
import functools
import gc
import socket
import threading
from contextlib import closing
from datetime import timedelta
from typing import Any, Callable, Coroutine, List, Set

import pytest

import monolock
from monolock import AsyncClient, Cancel, Loss, LossReason
from patience import PATIENCE_S, Clock, patient_async_client
from scripted import WAITING, Background, Connection, Everybody, Scripted, acquired, error

#: Nothing is due for a minute.
LEASE = timedelta(minutes=10)
#: For a clock that is stepped: the timers that find it out are in real time.
SHORT = timedelta(milliseconds=100)


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Runs a test in an event loop of its own, and finds out what it left behind or let fall."""

    @functools.wraps(test)
    def run(*args: Any, **named: Any) -> None:
        fallen: List[Any] = []

        async def main() -> None:
            asyncio.get_running_loop().set_exception_handler(lambda _loop, context: fallen.append(context))
            await asyncio.wait_for(test(*args, **named), 2 * PATIENCE_S)
            await asyncio.sleep(0)
            assert asyncio.all_tasks() == {asyncio.current_task()}

        asyncio.run(main())
        gc.collect()
        assert fallen == []

    return run


async def until(condition: Callable[[], object]) -> None:
    for _ in range(int(PATIENCE_S / 0.0025)):
        if condition():
            return
        await asyncio.sleep(0.0025)
    pytest.fail("it did not come about")


async def beat(connection: Connection, clock: Clock) -> None:
    """Ten heartbeats of a hold with the short lease, a quarter of it apart."""
    for _ in range(10):
        clock.step(SHORT / 4)
        await asyncio.to_thread(connection.read_heartbeat)
        connection.send(acquired(41))
        # The loop has read it after its second turn from here: before the clock goes on.
        await asyncio.sleep(0)
        await asyncio.sleep(0)


class TestHolding:
    @in_loop
    async def test_token_and_release(self, scripted: Scripted) -> None:
        def other_side() -> None:
            connection = scripted.accept()
            assert connection.read_acquire() == (600_000, "jobs")
            connection.send(acquired(2**63 + 1))
            assert connection.read_to_end() == b""

        with Background(other_side):
            async with patient_async_client(scripted.address).lock("jobs", lease=LEASE) as lock:
                assert (lock.name, lock.token, lock.lease) == ("jobs", 2**63 + 1, LEASE)
                assert lock.is_held() and not lock.lost.is_set() and lock.loss is None
            assert not lock.is_held() and lock.loss is None

    @in_loop
    async def test_b09_release_twice_and_hold_again(self, scripted: Scripted) -> None:
        client = patient_async_client(scripted.address)
        for token in (41, 42):
            with Background(lambda: scripted.grant(token).read_to_end()):
                lock = await client.acquire("jobs", LEASE)
                lock.release()
                lock.release()
            assert lock.token == token

    @in_loop
    async def test_b14_heartbeats_run_for_the_second_hold_as_for_the_first(self, scripted: Scripted) -> None:
        clock = Clock()
        client = patient_async_client(scripted.address, _clock=clock)
        with Background(lambda: scripted.grant().close()):
            first = await client.acquire("jobs", SHORT)
            assert await first.lost.wait()
        with Background(scripted.grant):
            second = await client.acquire("jobs", SHORT)
        await beat(scripted.connections[-1], clock)
        assert second.is_held()
        second.release()

    @in_loop
    async def test_lock_that_is_forgotten_is_released(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().read_to_end()):
            with pytest.warns(ResourceWarning, match="never released"):
                await patient_async_client(scripted.address).acquire("jobs", LEASE)
                gc.collect()

    @in_loop
    async def test_b27_a_claim_behind_ones_own(self, scripted: Scripted) -> None:
        clock = Clock()
        client = patient_async_client(scripted.address, _clock=clock)
        with Background(scripted.grant):
            lock = await client.acquire("jobs", LEASE)

        def other_side() -> None:
            scripted.accept().queue_late(clock)
            clock.step(SHORT / 4)

        with Background(other_side), pytest.raises(monolock.WaitTimeoutError):
            await client.acquire("jobs", SHORT, wait=SHORT / 2)
        assert client.claims("jobs") == 1
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
    @in_loop
    async def test_b08_reasons(self, scripted: Scripted, end: Any, passes: float, loss: Loss) -> None:
        told: List[Loss] = []
        clock = Clock()
        with Background(lambda: end(scripted.grant())):
            lock = await patient_async_client(scripted.address, _clock=clock).acquire("jobs", SHORT)
            lock.on_lost(told.append)
            clock.step(SHORT * passes)
            assert await asyncio.gather(lock.lost.wait(), lock.stop.wait()) == [True, True]
        lock.on_lost(told.append)
        assert (lock.loss, lock.is_held(), told) == (loss, False, [loss, loss])
        lock.release()
        assert lock.loss == loss

    @in_loop
    async def test_reset(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().reset()):
            lock = await patient_async_client(scripted.address).acquire("jobs", LEASE)
            assert await lock.lost.wait()
        assert lock.loss is not None and lock.loss.reason is LossReason.CLOSED

    @in_loop
    async def test_a_release_is_no_loss(self, scripted: Scripted) -> None:
        told: List[Loss] = []
        with Background(scripted.grant):
            lock = await patient_async_client(scripted.address).acquire("jobs", LEASE)
        lock.on_lost(told.append)
        waiting = asyncio.create_task(lock.lost.wait())
        await asyncio.sleep(0)
        lock.release()
        assert await waiting is False and told == []

    @in_loop
    async def test_b03_the_clock_says_no_before_anything_is_read(self, scripted: Scripted) -> None:
        clock = Clock()
        with Background(scripted.grant):
            lock = await patient_async_client(scripted.address, _clock=clock).acquire("jobs", LEASE)
        clock.step(LEASE)
        assert not lock.is_held() and lock.lost.is_set()
        clock.step(-LEASE)
        assert not lock.is_held() and lock.loss == Loss(LossReason.TIMEOUT)
        lock.release()

    @in_loop
    async def test_another_thread_may_ask(self, scripted: Scripted) -> None:
        clock = Clock()
        with Background(scripted.grant):
            lock = await patient_async_client(scripted.address, _clock=clock).acquire("jobs", LEASE)
        told: List[threading.Thread] = []
        lock.on_lost(lambda _loss: told.append(threading.current_thread()))
        clock.step(LEASE)
        with Background(lambda: told.append(threading.current_thread()) if lock.is_held() else None):
            pass
        await until(lambda: told)
        assert told == [threading.current_thread()], "the callback runs in the loop's thread"
        lock.release()

    @in_loop
    async def test_b05_a_blocked_loop(self, scripted: Scripted) -> None:
        order: List[str] = []
        clock = Clock()
        client = patient_async_client(scripted.address, _clock=clock)
        with Background(scripted.grant), pytest.raises(monolock.LostError) as lost:
            async with client.lock("jobs", SHORT) as lock:
                lock.on_lost(lambda loss: order.append(f"lost {loss.reason}"))
                connection = scripted.connections[-1]
                clock.step(SHORT / 4)
                await asyncio.to_thread(connection.read_heartbeat)
                # An answer that would do lies in the socket when the loop runs again; it revives nothing.
                connection.send(acquired(41))
                clock.step(SHORT * 0.6)
                order.append("unblocked")
                await asyncio.sleep(30)
                order.append("went on")
        assert order == ["unblocked", "lost timeout"]
        assert lost.value.loss == Loss(LossReason.TIMEOUT)

    @in_loop
    async def test_b05_a_look_after_the_block(self, scripted: Scripted) -> None:
        clock = Clock()
        client = patient_async_client(scripted.address, _clock=clock)
        with Background(scripted.grant), pytest.raises(monolock.LostError):
            async with client.lock("jobs", SHORT) as lock:
                clock.step(SHORT * 0.8)
                assert not lock.is_held()

    @in_loop
    async def test_b15_max_hold(self, scripted: Scripted) -> None:
        client = patient_async_client(scripted.address, max_hold=timedelta(milliseconds=200))
        with Background(lambda: scripted.grant().serve(acquired(41))):
            lock = await client.acquire("jobs", LEASE)
            assert await lock.lost.wait()
        assert lock.loss == Loss(LossReason.MAX_HOLD)


class TestTheBodyOfAsyncWith:
    """A loss cancels it, as asyncio.timeout does; what others do to the task stays theirs."""

    @in_loop
    async def test_a_loss_cancels_it(self, scripted: Scripted) -> None:
        unwound: List[str] = []
        with Background(lambda: scripted.grant().close()):
            with pytest.raises(monolock.LostError) as lost:
                async with patient_async_client(scripted.address).lock("jobs", LEASE):
                    try:
                        await asyncio.sleep(30)
                    finally:
                        unwound.append("finally")
        assert isinstance(lost.value.__cause__, asyncio.CancelledError) and unwound == ["finally"]
        # The task is not cancelled any more.
        await asyncio.sleep(0.01)

    @in_loop
    async def test_through_an_inner_task(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().close()), pytest.raises(monolock.LostError):
            async with patient_async_client(scripted.address).lock("jobs", LEASE):
                await asyncio.gather(asyncio.sleep(30), asyncio.create_task(asyncio.sleep(30)))

    @in_loop
    async def test_b11_an_own_error_stands(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().close()), pytest.raises(KeyError) as own:
            async with patient_async_client(scripted.address).lock("jobs", LEASE):
                try:
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    raise KeyError("own") from None
        assert monolock.loss_of(own.value) == Loss(LossReason.CLOSED)
        await asyncio.sleep(0.01)

    @in_loop
    async def test_a_body_that_ends_by_itself_after_the_loss(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.grant().close()), pytest.raises(monolock.LostError):
            async with patient_async_client(scripted.address).lock("jobs", LEASE) as lock:
                try:
                    await lock.lost.wait()
                    await asyncio.sleep(30)
                except asyncio.CancelledError:
                    pass
        await asyncio.sleep(0.01)

    @in_loop
    async def test_cancelling_from_outside_is_cancelling(self, scripted: Scripted) -> None:
        inside = asyncio.Event()

        async def work() -> None:
            async with patient_async_client(scripted.address).lock("jobs", LEASE):
                inside.set()
                await asyncio.sleep(30)

        with Background(lambda: scripted.grant().read_to_end()):
            task = asyncio.create_task(work())
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    @pytest.mark.parametrize("first", ["cancel", "loss"])
    @pytest.mark.parametrize("between", [0, 1, 2, 3])
    @pytest.mark.parametrize("inner", [False, True])
    @in_loop
    async def test_both_at_once_is_cancelling(self, scripted: Scripted, first: str, between: int, inner: bool) -> None:
        inside, acted = asyncio.Event(), asyncio.Event()
        locks: List[monolock.AsyncLock] = []

        async def unwinding() -> None:
            try:
                await asyncio.sleep(30)
            finally:
                await acted.wait()

        async def work() -> None:
            async with patient_async_client(scripted.address).lock("jobs", LEASE) as lock:
                locks.append(lock)
                inside.set()
                await (asyncio.create_task(unwinding()) if inner else unwinding())

        with Background(lambda: scripted.grant().read_to_end()):
            task = asyncio.create_task(work())
            await inside.wait()
            await asyncio.sleep(0)
            acts = [task.cancel, lambda: locks[0]._hold.end(Loss(LossReason.TIMEOUT))]
            for act in acts if first == "cancel" else reversed(acts):
                act()
                for _ in range(between):
                    await asyncio.sleep(0)
            acted.set()
            with pytest.raises(asyncio.CancelledError):
                await task
        assert task.cancelled()

    @in_loop
    async def test_a_timeout_inside_that_is_over_does_not_count(self, scripted: Scripted) -> None:
        go = threading.Event()

        def other_side() -> None:
            connection = scripted.grant()
            go.wait(PATIENCE_S)
            connection.close()

        with Background(other_side), pytest.raises(monolock.LostError):
            async with patient_async_client(scripted.address).lock("jobs", LEASE):
                with pytest.raises(asyncio.TimeoutError):
                    await asyncio.wait_for(asyncio.sleep(30), 0.01)
                go.set()
                await asyncio.sleep(30)

    @in_loop
    async def test_one_within_the_other(self, scripted: Scripted) -> None:
        client = patient_async_client(scripted.address)
        for lost_index in (0, 1):
            go = threading.Event()

            def other_side() -> None:
                connections = [scripted.grant(41), scripted.grant(42)]
                go.wait(PATIENCE_S)
                connections[lost_index].close()
                connections[1 - lost_index].read_to_end()

            with Background(other_side), pytest.raises(monolock.LostError) as lost:
                async with client.lock("outer", LEASE):
                    async with client.lock("inner", LEASE):
                        go.set()
                        await asyncio.sleep(30)
            assert lost.value.name == ["outer", "inner"][lost_index]
        await asyncio.sleep(0.01)

    @in_loop
    async def test_nothing_stays_on_the_task(self, scripted: Scripted) -> None:
        task = asyncio.current_task()
        assert task is not None
        with Background(lambda: scripted.grant().read_to_end()):
            async with patient_async_client(scripted.address).lock("jobs", LEASE):
                pass
        assert "cancel" not in getattr(task, "__dict__", {})


class TestAcquiring:
    @in_loop
    async def test_try(self, scripted: Scripted) -> None:
        client = patient_async_client(scripted.address)
        with Background(lambda: scripted.queue().read_to_end()), pytest.raises(monolock.ContendedError):
            await client.try_acquire("jobs", LEASE)
        with Background(scripted.grant):
            (await client.try_acquire("jobs", LEASE)).release()

    @in_loop
    async def test_b12_a_wait_limit_and_the_body_never_runs(self, scripted: Scripted) -> None:
        clock = Clock()

        def other_side() -> None:
            connection = scripted.accept().queue_late(clock)
            clock.step(SHORT / 4)
            connection.read_to_end()

        with Background(other_side), pytest.raises(monolock.WaitTimeoutError):
            async with patient_async_client(scripted.address, _clock=clock).lock("jobs", SHORT, wait=SHORT / 2):
                pytest.fail("it was not obtained")
        with Everybody(scripted, Connection.close), pytest.raises(monolock.WaitTimeoutError):
            await patient_async_client(scripted.address).acquire("jobs", LEASE, wait=timedelta(milliseconds=100), retry=True)

    @in_loop
    async def test_promoted(self, scripted: Scripted) -> None:
        with Background(lambda: scripted.queue().send(acquired(41))):
            (await patient_async_client(scripted.address).acquire("jobs", LEASE)).release()

    @in_loop
    async def test_lost_in_the_queue(self, scripted: Scripted) -> None:
        clock = Clock()
        for end, code in [(lambda c: c.close(), None), (lambda c: c.send(error(0x02)), 2), (lambda c: clock.step(SHORT), None)]:
            with Background(lambda: end(scripted.accept().queue_late(clock))), pytest.raises(monolock.LostError) as lost:
                await patient_async_client(scripted.address, _clock=clock).acquire("jobs", SHORT)
            assert lost.value.code == code

    @pytest.mark.parametrize(("code", "kind"), [(0x18, "denied"), (0x19, "invalid"), (0x10, "invalid"), (0x0F, "unreachable")])
    @in_loop
    async def test_refused(self, scripted: Scripted, code: int, kind: str) -> None:
        def other_side() -> None:
            connection = scripted.accept()
            connection.read_acquire()
            connection.send(error(code, "a\x1b[31m"))

        with Background(other_side), pytest.raises(monolock.MonolockError) as refused:
            await patient_async_client(scripted.address).acquire("jobs", LEASE, retry=code >= 0x10)
        assert (refused.value.kind, refused.value.code) == (kind, code)
        assert str(refused.value).isprintable()

    @in_loop
    async def test_unreachable(self, scripted: Scripted) -> None:
        with socket.socket() as nobody:
            # Bound, so that it is nobody else's; it does not listen.
            nobody.bind(("127.0.0.1", 0))
            address = "127.0.0.1:%d" % nobody.getsockname()[1]
            with pytest.raises(monolock.UnreachableError, match=address):
                await patient_async_client(address).acquire("jobs", LEASE)
        with Background(lambda: scripted.accept().close()), pytest.raises(monolock.UnreachableError):
            await patient_async_client(scripted.address).acquire("jobs", LEASE)
        for timeout in (timedelta(milliseconds=50), timedelta(microseconds=1)):
            with pytest.raises(monolock.UnreachableError, match="no answer"):
                await AsyncClient(scripted.address, connect_timeout=timeout).acquire("jobs", LEASE)

    @in_loop
    async def test_b46_a_mute_address_and_one_that_serves(self, scripted: Scripted) -> None:
        clock, timeout = Clock(), timedelta(milliseconds=200)

        def other_side() -> None:
            mute.accept().read_acquire()
            clock.step(timeout / 2)
            scripted.grant()

        with closing(Scripted()) as mute, Background(other_side):
            addresses = [mute.address, "localhost:" + scripted.address.split(":")[1]]
            (await AsyncClient(addresses, connect_timeout=timeout, _clock=clock).acquire("jobs", LEASE)).release()

    @in_loop
    async def test_retry(self, scripted: Scripted) -> None:
        def other_side() -> None:
            scripted.accept().close()
            scripted.queue().send(error(0x01))
            scripted.queue().reset()
            scripted.grant(44)

        with Background(other_side):
            lock = await patient_async_client(scripted.address).acquire("jobs", LEASE, retry=True)
        assert lock.token == 44
        lock.release()


class TestCancelling:
    @pytest.mark.parametrize("state", ["mute", "queued", "retrying"])
    @in_loop
    async def test_b50_the_switch(self, scripted: Scripted, state: str) -> None:
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
            await patient_async_client(scripted.address).acquire("jobs", LEASE, cancel=cancel, retry=state == "retrying")
        with pytest.raises(monolock.AcquireCancelledError):
            await patient_async_client(scripted.address).acquire("jobs", LEASE, cancel=cancel)

    @in_loop
    async def test_b10_the_switch_asks_the_work_to_stop_and_keeps_the_lock(self, scripted: Scripted) -> None:
        cancel, clock = Cancel(), Clock()

        async def work(held: monolock.AsyncHeld) -> str:
            cancel.cancel()
            assert await held.stop.wait()
            await beat(scripted.connections[-1], clock)
            assert held.is_held()
            return "wound up"

        with Background(scripted.grant):
            client = patient_async_client(scripted.address, _clock=clock)
            assert await client.do("jobs", SHORT, work, cancel=cancel) == "wound up"

    @in_loop
    async def test_b10_cancelling_the_task_keeps_the_lock_until_the_work_has_ended(self, scripted: Scripted) -> None:
        clock, inside = Clock(), asyncio.Event()

        async def work(held: monolock.AsyncHeld) -> None:
            try:
                inside.set()
                await asyncio.sleep(30)
            finally:
                await beat(scripted.connections[-1], clock)
                assert held.is_held()

        with Background(scripted.grant):
            task = asyncio.create_task(patient_async_client(scripted.address, _clock=clock).do("jobs", SHORT, work))
            await inside.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    @in_loop
    async def test_b50_cancelled_at_every_await(self, scripted: Scripted) -> None:
        """The task is cancelled after each number of steps of the event loop, until it gets through."""
        host = "localhost:" + scripted.address.split(":")[1]
        stop = threading.Event()
        other_side = functools.partial(grant_all, scripted, stop)
        ended: Set[str] = set()
        with Background(other_side):
            for steps in range(200):
                client = patient_async_client([scripted.address, host][steps % 2])
                task = asyncio.create_task(client.acquire("jobs", LEASE))
                for _ in range(steps // 2):
                    await asyncio.sleep(0)
                task.cancel()
                try:
                    (await task).release()
                    ended.add("acquired")
                except asyncio.CancelledError:
                    ended.add("cancelled")
            stop_accepting(scripted, stop)
        assert "cancelled" in ended

    @in_loop
    async def test_b50_a_thousand_rounds_leave_nothing(self, scripted: Scripted) -> None:
        client = patient_async_client(["localhost:" + scripted.address.split(":")[1], scripted.address])
        stop = threading.Event()
        with Background(functools.partial(grant_all, scripted, stop)):
            for number in range(1000):
                task = asyncio.create_task(client.acquire("jobs", LEASE))
                await asyncio.sleep(number % 7 / 2000)
                task.cancel()
                try:
                    (await task).release()
                except (asyncio.CancelledError, monolock.MonolockError):
                    pass
            stop_accepting(scripted, stop)
        assert client.claims("jobs") == 0
        await until(lambda: not [one for one in threading.enumerate() if one.name.startswith("monolock")])
        gc.collect()
        lines = [one for one in gc.get_objects() if isinstance(one, monolock._aio._Line)]
        # The loop closes a socket in the turn after the one that let it go.
        await until(lambda: not [line for line in lines if line._socket.fileno() != -1])


def grant_all(scripted: Scripted, stop: threading.Event) -> None:
    """Mute, queued or granted, by turns."""
    for number in range(10**6):
        connection = scripted.accept()
        if stop.is_set():
            return
        try:
            connection.send([acquired(number + 1), WAITING, b""][number % 3])
        except OSError:
            pass
        while len(scripted.connections) > 20:
            scripted.connections.pop(0).close()


def stop_accepting(scripted: Scripted, stop: threading.Event) -> None:
    stop.set()
    scripted.visit()


class TestWork:
    @in_loop
    async def test_the_result(self, scripted: Scripted) -> None:
        async def work(held: monolock.AsyncHeld) -> int:
            return held.token

        with Background(lambda: scripted.grant().read_to_end()):
            assert await patient_async_client(scripted.address).do("jobs", LEASE, work) == 41

    @in_loop
    async def test_b11_work_that_fails_under_a_lost_lock(self, scripted: Scripted) -> None:
        async def work(held: monolock.AsyncHeld) -> None:
            try:
                await held.stop.wait()
            finally:
                raise ZeroDivisionError

        with Background(lambda: scripted.grant().close()), pytest.raises(ZeroDivisionError) as own:
            await patient_async_client(scripted.address).do("jobs", LEASE, work)
        assert monolock.loss_of(own.value) == Loss(LossReason.CLOSED)

    @in_loop
    async def test_it_is_cancelled_at_the_loss_and_runs_at_most_once(self, scripted: Scripted) -> None:
        runs: List[int] = []

        async def work(held: monolock.AsyncHeld) -> None:
            runs.append(held.token)
            await asyncio.sleep(30)

        with Background(lambda: scripted.grant().close()), pytest.raises(monolock.LostError):
            await patient_async_client(scripted.address).do("jobs", LEASE, work, retry=True)
        assert runs == [41]
