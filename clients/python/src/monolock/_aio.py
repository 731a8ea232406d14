"""The asyncio client.

A claim is a protocol on a transport and one timer: no task. So whatever is awaited here can be cancelled at any moment, and what is open is
closed by plain calls that await nothing. Until the outcome is known the caller's own task holds the claim; whoever holds it shuts the socket
down itself when it lets go, without waiting for the event loop.
"""

from __future__ import annotations

import asyncio
import random
import socket
import ssl
import warnings
from datetime import timedelta
from types import TracebackType
from typing import Any, Awaitable, Callable, Optional, Sequence, Type, TypeVar, Union

from . import _dial, _errors, _fork
from ._backoff import Backoff
from ._cancel import Cancel
from ._channel import Channel, make_channel
from ._claim import Claim, Outcome
from ._claims import Claims
from ._clock import Clock
from ._config import DEFAULT_CONNECT_TIMEOUT, Config, checked_name, nanoseconds
from ._errors import Loss, LostError, MonolockError
from ._hold import Hold
from ._interrupt import Interruption
from ._resolve import Resolver
from ._session import SessionConfig, Standing
from ._signal import Signal

T = TypeVar("T")


class AsyncHoldEvent:
    """Something that happens once to a hold, as with ``asyncio.Event``; nobody but the client sets it."""

    def __init__(self, hold: Hold, signal: "Union[Signal[Loss], Signal[bool]]") -> None:
        self._hold = hold
        self._signal = signal

    def is_set(self) -> bool:
        """Whether it has happened: by the clock, like :meth:`AsyncHeld.is_held`. May be called from any thread."""
        self._hold.is_held()
        return self._signal.value is not None

    async def wait(self) -> bool:
        """Waits until it happens. Returns ``True``; ``False`` at the release: it can no longer happen."""
        self._hold.check_process()
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        unsubscribe = self._signal.subscribe(lambda value: _call_soon(loop, _set, ended, None))
        try:
            await ended
        finally:
            unsubscribe()
        return self._signal.value is not None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'set' if self._signal.value is not None else 'unset'}>"


class AsyncHeld:
    """A lock that was granted, seen from the work that it guards."""

    def __init__(self, hold: Hold, loop: asyncio.AbstractEventLoop) -> None:
        self._hold = hold
        self._loop = loop
        #: Happens when the lock is lost. A lock that is released was not lost.
        self.lost = AsyncHoldEvent(hold, hold.lost)
        #: Happens when the work is asked to stop: by the caller's :class:`Cancel`, or by the loss.
        self.stop = AsyncHoldEvent(hold, hold.stop)

    @property
    def name(self) -> str:
        """The lock's name."""
        return self._hold.name

    @property
    def lease(self) -> timedelta:
        """The lease of the claim."""
        return self._hold.lease

    @property
    def token(self) -> int:
        """The fencing token: larger than that of any earlier grant. Hand it to whatever the lock guards, which must refuse a token
        below the largest it saw."""
        return self._hold.token

    def is_held(self) -> bool:
        """Whether the lock is still held, by the clock: false from the give-up instant on, although the event loop has not run since
        and whatever lies unread in the socket. Once false, it stays false. After the release it is false too. May be called from
        any thread."""
        return self._hold.is_held()

    @property
    def loss(self) -> Optional[Loss]:
        """How the lock was lost, if it was: by the clock, like :meth:`is_held`."""
        return self._hold.loss()

    def on_lost(self, callback: Callable[[Loss], object]) -> None:
        """Calls ``callback`` with the loss, in the event loop's thread, when the lock is lost; at once, if it has been. It must not block.
        A release drops it uncalled."""
        self._hold.check_process()

        def relay(loss: Optional[Loss]) -> None:
            if loss is None:
                return
            if _running_loop() is self._loop:
                callback(loss)
            else:
                _call_soon(self._loop, callback, loss)

        self._hold.lost.subscribe(relay)

    def __repr__(self) -> str:
        held = self._hold.is_held() if self._hold.is_own() else None
        return f"<{type(self).__name__} name={self.name!r} token={self.token} held={held}>"


class AsyncLock(AsyncHeld):
    """A lock that is held, until :meth:`release` or the end of its ``async with`` block.

    When the lock is lost, the block is cancelled at its present ``await``, as by ``asyncio.timeout``, and the ``async with`` raises
    :class:`LostError` in place of that cancelling. It does so too where the block ended by itself after the loss: what it did was not
    guarded to its end. An error of the block's own stands, and the loss is joined to it (:func:`loss_of`). Cancelling that comes from
    elsewhere stays what it is.
    """

    def __init__(self, hold: Hold, line: "_Line", leave: Callable[[], None], loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(hold, loop)
        self._line = line
        self._leave = leave
        self._interruption: Optional[Interruption] = None

    @property
    def held(self) -> AsyncHeld:
        """A view of the hold, to be handed to the work: it cannot release."""
        return AsyncHeld(self._hold, self._loop)

    def release(self) -> None:
        """Releases the lock: its connection is shut down when this returns, and nothing is waited for from the server. Twice is
        harmless. Nothing to ``await``, so nothing can cancel it."""
        self._hold.check_process()
        self._let_go()

    async def __aenter__(self) -> "AsyncLock":
        self._hold.check_process()
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("async with needs to run in a task")
        if self._interruption is not None:
            raise RuntimeError("this lock guards an async with block already")
        interruption = self._interruption = Interruption(task)
        loop = self._loop

        def lost(loss: Optional[Loss]) -> None:
            if loss is not None:
                _call_soon(loop, interruption.fire)

        self._hold.lost.subscribe(lost)
        return self

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        interruption, self._interruption = self._interruption, None
        interrupted = interruption is not None and interruption.disarm(error)
        if not self._hold.is_own() and error is not None:
            return
        try:
            loss = self._hold.loss()
        finally:
            if self._hold.is_own():
                self._let_go()
        if loss is None:
            return
        if error is None or interrupted:
            raise LostError(self.name, loss) from error
        _errors.join_loss(error, self.name, loss)

    def __del__(self) -> None:
        line = getattr(self, "_line", None)
        if line is None or line.is_hung_up or not self._hold.is_own():
            return
        was_held = self._hold.is_held()
        self._let_go()
        if was_held:
            warnings.warn(f"lock {self.name!r} was never released", ResourceWarning, source=self)

    def _let_go(self) -> None:
        self._hold.release()
        self._line.hang_up()
        self._leave()


class AsyncLockContext:
    """Acquires at its ``async with``, and releases at the end; see :meth:`AsyncClient.lock`."""

    def __init__(self, acquire: Callable[[], Awaitable[AsyncLock]]) -> None:
        self._acquire = acquire
        self._lock: Optional[AsyncLock] = None

    async def __aenter__(self) -> AsyncLock:
        if self._lock is not None:
            raise RuntimeError("this lock context is in use: call client.lock() for each block")
        self._lock = await self._acquire()
        return await self._lock.__aenter__()

    async def __aexit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            await lock.__aexit__(kind, error, trace)


class AsyncClient:
    """A client of one server, or of several addresses of one, for asyncio. It keeps no connection of its own: every claim on a lock is a
    connection. Bound to no event loop.

    Every call can be cancelled at any moment: what it had opened is closed at once, and no task is left behind. The parameters are those
    of :class:`Client`.
    """

    def __init__(
        self,
        addresses: Union[str, Sequence[str]],
        *,
        tls: Optional[ssl.SSLContext] = None,
        server_name: Optional[str] = None,
        connect_timeout: timedelta = DEFAULT_CONNECT_TIMEOUT,
        max_hold: Optional[timedelta] = None,
        _clock: Optional[Clock] = None,
    ) -> None:
        self._config = Config(addresses, tls, server_name, connect_timeout, max_hold, _clock)
        self._resolver = Resolver()
        self._claims = Claims()

    async def acquire(
        self,
        name: str,
        lease: timedelta,
        *,
        wait: Optional[timedelta] = None,
        retry: bool = False,
        cancel: Optional[Cancel] = None,
    ) -> AsyncLock:
        """Acquires the lock, waiting for its turn in the queue; at most ``wait``, all attempts together.

        With ``retry`` it tries again where the server cannot be reached or the place in the queue is lost: after exponential backoff with
        full jitter, 100 ms doubling to 5 s. After a shutdown of the server (code 0x01) the first new attempt comes within 100 ms. Codes
        from 0x10 up are final.

        Raises any :class:`MonolockError` but :class:`ContendedError`.
        """
        request = self._config.request(name, lease)
        limit_ns = None if wait is None else nanoseconds("wait", wait)
        with _Bounds(request.name, self._config.clock, limit_ns, cancel) as bounds:
            if retry:
                return await self._obtain_persistently(request, bounds, cancel)
            return await self._obtain(request, bounds, cancel, queue=True)

    async def try_acquire(self, name: str, lease: timedelta, *, cancel: Optional[Cancel] = None) -> AsyncLock:
        """Acquires the lock if it is free. Raises :class:`ContendedError` where it is not, or another :class:`MonolockError`."""
        request = self._config.request(name, lease)
        with _Bounds(request.name, self._config.clock, None, cancel) as bounds:
            return await self._obtain(request, bounds, cancel, queue=False)

    def lock(
        self,
        name: str,
        lease: timedelta,
        *,
        wait: Optional[timedelta] = None,
        retry: bool = False,
        cancel: Optional[Cancel] = None,
    ) -> AsyncLockContext:
        """``async with client.lock("nightly-import", lease=timedelta(seconds=2)) as lock:`` acquires as :meth:`acquire` does, runs the
        block, and releases on every path. See :class:`AsyncLock` for what a loss does."""
        return AsyncLockContext(lambda: self.acquire(name, lease, wait=wait, retry=retry, cancel=cancel))

    async def do(
        self,
        name: str,
        lease: timedelta,
        work: Callable[[AsyncHeld], Awaitable[T]],
        *,
        wait: Optional[timedelta] = None,
        retry: bool = False,
        cancel: Optional[Cancel] = None,
    ) -> T:
        """Acquires as :meth:`acquire` does, runs ``work`` under the lock, at most once, releases on every path, and returns the result.

        Using ``cancel`` asks the work to stop (:attr:`AsyncHeld.stop`), and cancelling the task does so in asyncio's own way; the lock is
        kept until the work has ended. A loss cancels the work as in :class:`AsyncLock`, and :class:`LostError` is raised.
        """
        async with await self.acquire(name, lease, wait=wait, retry=retry, cancel=cancel) as lock:
            return await work(lock.held)

    def claims(self, name: str) -> int:
        """How many claims on this lock are open through this client, held or waiting. A claim that is made while there is one queues
        behind it, as behind a stranger's."""
        return self._claims.count(checked_name(name))

    async def _obtain_persistently(
        self, request: SessionConfig, bounds: "_Bounds", cancel: Optional[Cancel]
    ) -> AsyncLock:
        clock, backoff = self._config.clock, Backoff()
        while True:
            begun = clock()
            try:
                return await self._obtain(request, bounds, cancel, queue=True)
            except MonolockError as error:
                delay_ns = backoff.delay_ns(error, clock() - begun, random.random)
                if delay_ns is None:
                    raise
            await bounds.wait(bounds.loop.create_future(), clock() + delay_ns)

    async def _obtain(
        self, request: SessionConfig, bounds: "_Bounds", cancel: Optional[Cancel], *, queue: bool
    ) -> AsyncLock:
        """One attempt."""
        bounds.check()
        leave = self._claims.enter(request.name)
        line: Optional[_Line] = None
        try:
            line = await self._open(request, bounds, cancel)
            if not queue and not line.outcome.done():
                raise _errors.contended(request.name)
            await bounds.wait(line.outcome)
            came = line.outcome.result()
            if isinstance(came, MonolockError):
                raise came
            return AsyncLock(came, line, leave, bounds.loop)
        except BaseException:
            if line is not None:
                line.hang_up()
            leave()
            raise

    async def _open(self, request: SessionConfig, bounds: "_Bounds", cancel: Optional[Cancel]) -> "_Line":
        """Connects to the first address whose server takes the claim in, within the connect timeout."""
        clock = self._config.clock
        dial = _dial.Dial(clock(), self._config, request.name)
        while True:
            step = dial.next_step(clock())
            if isinstance(step, _dial.LookUp):
                dial.found(step, await self._look_up(step, bounds))
                continue
            failure: Union[Loss, Exception, None]
            try:
                opened = await self._open_one(step, request, bounds, cancel)
            except (OSError, ValueError) as error:
                failure = error
            else:
                if isinstance(opened, _Line):
                    return opened
                failure = opened
            dial.failed(step, failure)

    async def _look_up(
        self, step: _dial.LookUp, bounds: "_Bounds"
    ) -> "Union[Sequence[_dial.Candidate], Exception, None]":
        until = self._config.clock() + step.budget_ns
        answer = self._resolver.look_up(step.address)
        if answer.value is not None:
            return answer.value
        loop = bounds.loop
        ended: asyncio.Future[None] = loop.create_future()
        unsubscribe = answer.subscribe(lambda found: _call_soon(loop, _set, ended, None))
        try:
            await bounds.wait(ended, until)
        finally:
            unsubscribe()
        return answer.value

    async def _open_one(
        self, step: _dial.Connect, request: SessionConfig, bounds: "_Bounds", cancel: Optional[Cancel]
    ) -> "Union[_Line, Loss, None]":
        """Connects to one address and waits for the first answer; ``None``: not in time."""
        until = self._config.clock() + step.budget_ns
        channel = make_channel(self._config.tls, self._config.tls_name(step.address))
        family, address = step.candidate
        line = _Line(self._config.clock, request, cancel, channel, socket.socket(family, socket.SOCK_STREAM), bounds.loop)
        connecting = bounds.loop.create_task(line.connect(address))
        connecting.add_done_callback(line.connecting_ended)
        is_wanted = False
        try:
            if not await bounds.wait(connecting, until):
                return None
            connecting.result()
            if not await bounds.wait(line.answered, until):
                return None
            answer = line.answered.result()
            is_wanted = answer is None
            return answer if answer is not None else line
        finally:
            if not is_wanted:
                line.hang_up()
                await _drain(connecting)


class _Bounds:
    """What ends one call's acquiring from outside: its wait limit and the caller's switch."""

    def __init__(self, name: str, clock: Clock, limit_ns: Optional[int], cancel: Optional[Cancel]) -> None:
        self.loop = asyncio.get_running_loop()
        self._name = name
        self._clock = clock
        self._limit_ns = limit_ns
        self._deadline = None if limit_ns is None else clock() + limit_ns
        self._cancel = cancel
        self._cancelled: asyncio.Future[None] = self.loop.create_future()
        self._unsubscribe: Callable[[], None] = lambda: None

    def __enter__(self) -> "_Bounds":
        if self._cancel is not None:
            loop, cancelled = self.loop, self._cancelled
            self._unsubscribe = self._cancel._subscribe(lambda: _call_soon(loop, _set, cancelled, None))
        return self

    def __exit__(self, *_error: object) -> None:
        self._unsubscribe()

    def check(self) -> None:
        """Raises where the call is over."""
        if self._cancel is not None and self._cancel.is_cancelled():
            raise _errors.cancelled(self._name)
        if self._deadline is not None and self._clock() >= self._deadline:
            raise _errors.wait_timeout(self._name, (self._limit_ns or 0) / 1e9)

    async def wait(self, future: "asyncio.Future[Any]", until: Optional[int] = None) -> bool:
        """Waits for ``future`` and leaves it alone; says whether it is done, or ``until`` has come first. Raises where the call is over
        before."""
        instants = [instant for instant in (until, self._deadline) if instant is not None]
        while not future.done():
            self.check()
            now = self._clock()
            if until is not None and now >= until:
                return False
            timeout_s = (min(instants) - now) / 1e9 if instants else None
            await asyncio.wait({future, self._cancelled}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        return True


class _Line(asyncio.Protocol, _fork.AtFork):
    """A connection and the claim on it."""

    def __init__(
        self,
        clock: Clock,
        request: SessionConfig,
        cancel: Optional[Cancel],
        channel: Channel,
        sock: socket.socket,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self.is_hung_up = False
        #: The server took the claim in (``None``), or did not.
        self.answered: asyncio.Future[Optional[Loss]] = loop.create_future()
        self.outcome: asyncio.Future[Outcome] = loop.create_future()
        self._clock = clock
        self._request = request
        self._cancel = cancel
        self._channel = channel
        self._socket = sock
        self._loop = loop
        self._claim: Optional[Claim] = None
        self._transport: Optional[asyncio.Transport] = None
        self._timer: Optional[asyncio.TimerHandle] = None
        sock.setblocking(False)
        _fork.register(self)

    async def connect(self, address: "tuple[Any, ...]") -> None:
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        await self._loop.sock_connect(self._socket, address)
        await self._loop.create_connection(lambda: self, sock=self._socket)

    def connecting_ended(self, task: "asyncio.Task[None]") -> None:
        """Not a part of the task, which is cancelled before it has begun where the time is up already."""
        if self._transport is None:
            self._socket.close()
        # Its error was told already, or nobody wants to know.
        if not task.cancelled():
            task.exception()

    def hang_up(self) -> None:
        """Ends the connection on the wire here and now. From any thread."""
        if self.is_hung_up:
            return
        self.is_hung_up = True
        timer, self._timer = self._timer, None
        if self._transport is None:
            # The end of the task that connects closes the socket.
            return
        try:
            if self._transport.get_write_buffer_size() == 0:
                farewell = self._channel.farewell()
                if farewell:
                    self._socket.send(farewell)
            self._socket.shutdown(socket.SHUT_RDWR)
        except (OSError, ValueError):
            # The connection is already gone.
            pass
        if _running_loop() is self._loop:
            _abandon(timer, self._transport)
        else:
            _call_soon(self._loop, _abandon, timer, self._transport)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        if self.is_hung_up:
            transport.abort()
            return
        try:
            self._write(self._channel.start())
        except (ssl.SSLError, ValueError) as error:
            return self._ended(str(error))
        self._begin()

    def data_received(self, data: bytes) -> None:
        if self.is_hung_up:
            return
        try:
            plain = self._channel.receive(data)
            self._write(self._channel.pending())
        except EOFError:
            return self._ended("")
        except ssl.SSLError as error:
            return self._ended(str(error))
        if self._claim is None:
            return self._begin()
        self._claim.receive(plain)
        self._follow()

    def eof_received(self) -> Optional[bool]:
        self._ended("")
        return False

    def connection_lost(self, error: Optional[Exception]) -> None:
        if error is not None and self._claim is not None and not self.is_hung_up:
            self._hear_last_word()
        self._ended("" if error is None else str(error) or type(error).__name__)

    def after_fork_in_child(self) -> None:
        self.is_hung_up = True
        self._socket.close()

    def _begin(self) -> None:
        """The claim is made as soon as the channel is open."""
        if not self._channel.is_open:
            return
        self._claim = Claim(self._request, self._clock, self._cancel, lambda outcome: _set(self.outcome, outcome))
        self._follow()

    def _follow(self) -> None:
        """After every input: tells, writes, and sets the timer anew."""
        claim = self._claim
        if claim is None:
            return
        if claim.standing is not Standing.ASKING:
            _set(self.answered, claim.refusal)
        if claim.is_over():
            return self.hang_up()
        frame = claim.transmit()
        if frame:
            self._write(self._channel.send(frame))
        if self._timer is not None:
            self._timer.cancel()
        if not self.is_hung_up:
            self._timer = self._loop.call_later(claim.until_due_ns() / 1e9, self._tick)

    def _tick(self) -> None:
        self._timer = None
        if self._claim is not None and not self.is_hung_up:
            self._claim.tick()
            self._follow()

    def _write(self, raw: bytes) -> None:
        if raw and self._transport is not None:
            self._transport.write(raw)

    def _hear_last_word(self) -> None:
        """Writing failed. The server's last word may lie in the socket and say more than the system's error."""
        try:
            plain = self._channel.receive(self._socket.recv(4096))
            if plain and self._claim is not None:
                self._claim.receive(plain)
        except (OSError, EOFError):
            pass

    def _ended(self, detail: str) -> None:
        """The connection is gone."""
        if self.is_hung_up:
            return
        if self._claim is None:
            _set(self.answered, Loss(_errors.LossReason.CLOSED, detail=detail))
            return self.hang_up()
        self._claim.disconnected(detail)
        self._follow()


def _abandon(timer: Optional[asyncio.TimerHandle], transport: asyncio.Transport) -> None:
    if timer is not None:
        timer.cancel()
    transport.abort()


async def _drain(task: "asyncio.Task[None]") -> None:
    """Cancels the task and waits for its end, which is near."""
    task.cancel()
    if not task.done():
        await asyncio.wait({task})


def _set(future: "asyncio.Future[T]", value: T) -> None:
    if not future.done():
        future.set_result(value)


def _running_loop() -> Optional[asyncio.AbstractEventLoop]:
    try:
        return asyncio.get_running_loop()
    except RuntimeError:
        return None


def _call_soon(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: Any) -> None:
    try:
        loop.call_soon_threadsafe(callback, *args)
    except RuntimeError:
        # The loop is closed: nobody is left to be told.
        pass
