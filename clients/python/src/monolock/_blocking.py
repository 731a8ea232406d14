"""The blocking client: sessions on plain threads.

One thread keeps each claim, from the look-up to the end of the hold, so heartbeats go out whatever the caller's thread does. The caller waits
for the outcome, for its wait limit or for its switch, whichever comes first, and lets go of the claim by hanging up: that shuts the socket
down here and now, and the thread finds it so.
"""

from __future__ import annotations

import errno
import os
import random
import select
import selectors
import socket
import ssl
import threading
import warnings
from datetime import timedelta
from types import TracebackType
from typing import Any, Callable, Optional, Sequence, Type, TypeVar, Union

from . import _dial, _errors, _fork
from ._backoff import Backoff
from ._cancel import Cancel
from ._channel import Channel, make_channel
from ._claim import Claim, Outcome
from ._claims import Claims
from ._clock import MILLISECOND, Clock
from ._config import DEFAULT_CONNECT_TIMEOUT, Config, checked_name, nanoseconds
from ._errors import Attempt, Loss, LostError, MonolockError, UnreachableError
from ._hold import Hold
from ._resolve import Resolver
from ._session import SessionConfig, Standing
from ._signal import Signal

T = TypeVar("T")

#: How many bytes one read takes: several frames, of which there are seldom two.
READ_BYTES = 4096

#: How long a thread that looks up or connects goes without asking whether anybody still wants it.
SLICE_NS = 20 * MILLISECOND

_IN_PROGRESS = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR, getattr(errno, "WSAEWOULDBLOCK", errno.EWOULDBLOCK))


class HoldEvent:
    """Something that happens once to a hold, as with ``threading.Event``; nobody but the client sets it."""

    def __init__(self, hold: Hold, signal: "Union[Signal[Loss], Signal[bool]]") -> None:
        self._hold = hold
        self._signal = signal

    def is_set(self) -> bool:
        """Whether it has happened: by the clock, like :meth:`Held.is_held`."""
        self._hold.is_held()
        return self._signal.value is not None

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits until it happens, at most so long; says whether it has. Returns ``False`` at the release too: it can no longer
        happen."""
        self._hold.check_process()
        timeout_s = None if timeout is None else nanoseconds("timeout", timeout) / 1e9
        return self._signal.wait(timeout_s) is not None or self.is_set()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'set' if self._signal.value is not None else 'unset'}>"


class Held:
    """A lock that was granted, seen from the work that it guards. May be used from any thread."""

    def __init__(self, hold: Hold) -> None:
        self._hold = hold
        #: Happens when the lock is lost. A lock that is released was not lost.
        self.lost = HoldEvent(hold, hold.lost)
        #: Happens when the work is asked to stop: by the caller's :class:`Cancel`, or by the loss.
        self.stop = HoldEvent(hold, hold.stop)

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
        """Whether the lock is still held, by the clock: false from the give-up instant on, although nothing has run since and
        whatever lies unread in the socket. Once false, it stays false. After the release it is false too."""
        return self._hold.is_held()

    @property
    def loss(self) -> Optional[Loss]:
        """How the lock was lost, if it was: by the clock, like :meth:`is_held`."""
        return self._hold.loss()

    def on_lost(self, callback: Callable[[Loss], object]) -> None:
        """Calls ``callback`` with the loss when the lock is lost; at once and on this thread, if it has been. Otherwise it runs on the
        thread that notices and must not block. A release drops it uncalled."""
        self._hold.check_process()
        self._hold.lost.subscribe(lambda loss: callback(loss) if loss is not None else None)

    def __repr__(self) -> str:
        held = self._hold.is_held() if self._hold.is_own() else None
        return f"<{type(self).__name__} name={self.name!r} token={self.token} held={held}>"


class Lock(Held):
    """A lock that is held, until :meth:`release` or the end of its ``with`` block.

    The ``with`` block raises :class:`LostError` at its end where the lock was lost before it: what it did was not guarded to its end. An
    error of the block's own stands, and the loss is joined to it (:func:`loss_of`).
    """

    def __init__(self, hold: Hold, line: "_Line", leave: Callable[[], None]) -> None:
        super().__init__(hold)
        self._line = line
        self._leave = leave

    @property
    def held(self) -> Held:
        """A view of the hold, to be handed to the work: it cannot release."""
        return Held(self._hold)

    def release(self) -> None:
        """Releases the lock: its connection is shut down when this returns, and nothing is waited for from the server. Twice is
        harmless."""
        self._hold.check_process()
        self._let_go()

    def __enter__(self) -> "Lock":
        self._hold.check_process()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        if not self._hold.is_own() and error is not None:
            return
        try:
            loss = self._hold.loss()
        finally:
            if self._hold.is_own():
                self._let_go()
        if loss is None:
            return
        if error is None:
            raise LostError(self.name, loss)
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


class LockContext:
    """Acquires at its ``with``, and releases at the end; see :meth:`Client.lock`."""

    def __init__(self, acquire: Callable[[], Lock]) -> None:
        self._acquire = acquire
        self._lock: Optional[Lock] = None

    def __enter__(self) -> Lock:
        if self._lock is not None:
            raise RuntimeError("this lock context is in use: call client.lock() for each block")
        self._lock = self._acquire()
        return self._lock.__enter__()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.__exit__(kind, error, trace)


class Client:
    """A client of one server, or of several addresses of one. It keeps no connection of its own: every claim on a lock is a connection,
    with a thread to keep it. May be shared between threads.

    ``addresses``: ``"host:port"``, or several, tried in their order. Names are resolved anew at each attempt.
    ``tls``: how to encrypt and whom to trust; a client certificate loaded into it makes it mutual. ``server_name``: the name that the
    server's certificate must bear, where it is not the address's host.
    ``connect_timeout``: how long one attempt may take from the first look-up to the server's first answer, all addresses together.
    ``max_hold``: a hold that lasts longer counts as lost.
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

    def acquire(
        self,
        name: str,
        lease: timedelta,
        *,
        wait: Optional[timedelta] = None,
        retry: bool = False,
        cancel: Optional[Cancel] = None,
    ) -> Lock:
        """Acquires the lock, waiting for its turn in the queue; at most ``wait``, all attempts together.

        With ``retry`` it tries again where the server cannot be reached or the place in the queue is lost: after exponential backoff with
        full jitter, 100 ms doubling to 5 s. After a shutdown of the server (code 0x01) the first new attempt comes within 100 ms. Codes
        from 0x10 up are final.

        Raises any :class:`MonolockError` but :class:`ContendedError`.
        """
        request = self._config.request(name, lease)
        limit_ns = None if wait is None else nanoseconds("wait", wait)
        if retry:
            return self._obtain_persistently(request, limit_ns, cancel)
        return self._obtain(request, limit_ns, cancel, queue=True)

    def try_acquire(self, name: str, lease: timedelta, *, cancel: Optional[Cancel] = None) -> Lock:
        """Acquires the lock if it is free. Raises :class:`ContendedError` where it is not, or another :class:`MonolockError`."""
        return self._obtain(self._config.request(name, lease), None, cancel, queue=False)

    def lock(
        self,
        name: str,
        lease: timedelta,
        *,
        wait: Optional[timedelta] = None,
        retry: bool = False,
        cancel: Optional[Cancel] = None,
    ) -> LockContext:
        """``with client.lock("nightly-import", lease=timedelta(seconds=2)) as lock:`` acquires as :meth:`acquire` does, runs the block, and
        releases on every path. See :class:`Lock` for what a loss does."""
        return LockContext(lambda: self.acquire(name, lease, wait=wait, retry=retry, cancel=cancel))

    def do(
        self,
        name: str,
        lease: timedelta,
        work: Callable[[Held], T],
        *,
        wait: Optional[timedelta] = None,
        retry: bool = False,
        cancel: Optional[Cancel] = None,
    ) -> T:
        """Acquires as :meth:`acquire` does, runs ``work`` under the lock, at most once, releases on every path, and returns the result.

        A thread cannot be stopped from outside: the work looks at :attr:`Held.stop` or :meth:`Held.is_held` before each step that matters,
        or registers with :meth:`Held.on_lost`. Using ``cancel`` only asks it to stop: the lock is kept until it has ended.

        The work's own error stands, and a loss is joined to it (:func:`loss_of`). Work that succeeds under a lock that was lost before its
        end raises :class:`LostError`.
        """
        with self.acquire(name, lease, wait=wait, retry=retry, cancel=cancel) as lock:
            return work(lock.held)

    def claims(self, name: str) -> int:
        """How many claims on this lock are open through this client, held or waiting. A claim that is made while there is one queues
        behind it, as behind a stranger's."""
        return self._claims.count(checked_name(name))

    def _obtain_persistently(self, request: SessionConfig, limit_ns: Optional[int], cancel: Optional[Cancel]) -> Lock:
        clock, backoff = self._config.clock, Backoff()
        deadline = None if limit_ns is None else clock() + limit_ns
        while True:
            begun = clock()
            try:
                remaining_ns = None if deadline is None else max(0, deadline - begun)
                return self._obtain(request, remaining_ns, cancel, queue=True, told_ns=limit_ns)
            except MonolockError as error:
                delay_ns = backoff.delay_ns(error, clock() - begun, random.random)
                if delay_ns is None:
                    raise
            if deadline is not None:
                delay_ns = max(0, min(delay_ns, deadline - clock()))
            # Cut short, it goes on to an attempt that fails at once for the same reason.
            (cancel or Cancel()).wait(timedelta(microseconds=delay_ns / 1000))

    def _obtain(
        self,
        request: SessionConfig,
        limit_ns: Optional[int],
        cancel: Optional[Cancel],
        *,
        queue: bool,
        told_ns: Optional[int] = None,
    ) -> Lock:
        """One attempt."""
        if cancel is not None and cancel.is_cancelled():
            raise _errors.cancelled(request.name)
        outcome: Signal[Outcome] = Signal()
        line = _Line()
        leave = self._claims.enter(request.name)
        unsubscribe = (
            cancel._subscribe(lambda: outcome.set(_errors.cancelled(request.name))) if cancel is not None else None
        )
        keeper = _Keeper(self._config, self._resolver, request, cancel, queue, outcome, line)
        try:
            keeper.start()
            came = outcome.wait(None if limit_ns is None else limit_ns / 1e9)
            if came is None:
                raise _errors.wait_timeout(request.name, (told_ns if told_ns is not None else limit_ns or 0) / 1e9)
            if isinstance(came, MonolockError):
                raise came
            return Lock(came, line, leave)
        except BaseException:
            # Whoever else got hold of the outcome finds it over.
            line.hang_up()
            leave()
            raise
        finally:
            if unsubscribe is not None:
                unsubscribe()


class _HungUp(Exception):
    """Nobody wants the claim any more."""


class _NoTime(Exception):
    """The share of the connect timeout is used up."""


class _Line(_fork.AtFork):
    """What ties a caller to the thread that keeps its claim."""

    def __init__(self) -> None:
        # Held for as long as a system call takes that does not block.
        self.lock = threading.RLock()
        self.is_hung_up = False
        self._connection: Optional[_Connection] = None
        _fork.register(self)

    def hang_up(self) -> None:
        """Ends the connection on the wire here and now."""
        with self.lock:
            self.is_hung_up = True
            if self._connection is not None:
                self._connection.shut_down()

    def connect(self, connection: "_Connection") -> None:
        """Puts the claim's connection where hanging up finds it."""
        with self.lock:
            self.check()
            self._connection = connection

    def disconnect(self) -> None:
        """Closes the connection; the claim may get another."""
        with self.lock:
            connection, self._connection = self._connection, None
            if connection is not None:
                connection.shut_down()
                connection.close()

    def check(self) -> None:
        if self.is_hung_up:
            raise _HungUp

    def after_fork_in_child(self) -> None:
        self.lock = threading.RLock()
        self.is_hung_up = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()


class _Connection:
    """A socket and the channel on it. Not blocking."""

    def __init__(self, sock: socket.socket, channel: Channel) -> None:
        self._socket = sock
        self.channel = channel
        self._unwritten = b""
        self._is_shut_down = False
        # `poll` and `select` need no descriptor of their own; `select` alone has a limit on their numbers.
        self._selector: Union[selectors.SelectSelector, "selectors.PollSelector"] = (
            selectors.PollSelector() if hasattr(select, "poll") else selectors.SelectSelector()
        )
        self._selector.register(sock, selectors.EVENT_READ)

    def connect(self, address: "tuple[Any, ...]") -> None:
        code = self._socket.connect_ex(address)
        if code != 0 and code not in _IN_PROGRESS:
            raise OSError(code, os.strerror(code))

    def connected(self) -> None:
        """Raises the error that the connecting came to, if it did."""
        code = self._socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            raise OSError(code, os.strerror(code))

    def poll(self, events: int, timeout_ns: int) -> bool:
        self._selector.modify(self._socket, events)
        return bool(self._selector.select(max(0, timeout_ns) / 1e9))

    def wait(self, timeout_ns: int) -> bool:
        """Waits until there is something to read, or room for what is unwritten."""
        return self.poll(selectors.EVENT_READ | (selectors.EVENT_WRITE if self._unwritten else 0), timeout_ns)

    def write(self, raw: bytes) -> None:
        self._unwritten += raw
        try:
            while self._unwritten:
                self._unwritten = self._unwritten[self._socket.send(self._unwritten) :]
        except (BlockingIOError, InterruptedError):
            pass

    def read(self) -> bytes:
        """What has come, nothing included. Raises :class:`EOFError` at the end."""
        try:
            raw = self._socket.recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return b""
        if not raw:
            raise EOFError
        return self.channel.receive(raw)

    def shut_down(self) -> None:
        if self._is_shut_down:
            return
        self._is_shut_down = True
        try:
            if not self._unwritten:
                farewell = self.channel.farewell()
                if farewell:
                    self._socket.send(farewell)
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            # The connection is already gone.
            pass

    def close(self) -> None:
        self._socket.close()


class _Keeper(threading.Thread):
    """The thread that keeps one claim. A daemon: at the end of the process the system closes the connection, which is the release."""

    def __init__(
        self,
        config: Config,
        resolver: Resolver,
        request: SessionConfig,
        cancel: Optional[Cancel],
        queue: bool,
        outcome: "Signal[Outcome]",
        line: _Line,
    ) -> None:
        super().__init__(name="monolock-session", daemon=True)
        self._config = config
        self._resolver = resolver
        self._request = request
        self._cancel = cancel
        self._queue = queue
        self._outcome = outcome
        self._line = line

    def start(self) -> None:
        try:
            super().start()
        except RuntimeError as error:
            attempt = Attempt("this process", f"cannot start a thread: {error}")
            raise _errors.unreachable(self._request.name, [attempt]) from error

    def run(self) -> None:
        try:
            self._keep()
        except _HungUp:
            pass
        except MonolockError as error:
            self._outcome.set(error)
        except BaseException as error:
            failed = UnreachableError(f"the client failed while it kept lock {self._request.name!r}: {error!r}")
            failed.__cause__ = error
            self._outcome.set(failed)
            raise
        finally:
            self._line.disconnect()

    def _keep(self) -> None:
        connection, claim = self._open()
        try:
            if claim.standing is Standing.QUEUED and not self._queue:
                self._outcome.set(_errors.contended(self._request.name))
                return
            while not claim.is_over():
                self._step(connection, claim, claim.until_due_ns())
        finally:
            claim.abandon()

    def _open(self) -> "tuple[_Connection, Claim]":
        """Connects to the first address whose server takes the claim in, within the connect timeout."""
        clock = self._config.clock
        dial = _dial.Dial(clock(), self._config, self._request.name)
        while True:
            step = dial.next_step(clock())
            if isinstance(step, _dial.LookUp):
                dial.found(step, self._look_up(step))
                continue
            failure: Union[Loss, Exception, None]
            try:
                opened = self._open_one(step)
            except _NoTime:
                failure = None
            except (OSError, EOFError, ValueError) as error:
                failure = error if str(error) else ConnectionError("the server closed the connection")
            else:
                if not isinstance(opened, Loss):
                    return opened
                failure = opened
            self._line.disconnect()
            self._line.check()
            dial.failed(step, failure)

    def _look_up(self, step: _dial.LookUp) -> "Union[Sequence[_dial.Candidate], Exception, None]":
        clock = self._config.clock
        until = clock() + step.budget_ns
        answer = self._resolver.look_up(step.address)
        while True:
            self._line.check()
            remaining_ns = until - clock()
            found = answer.wait(max(0, min(SLICE_NS, remaining_ns)) / 1e9)
            if found is not None or remaining_ns <= 0:
                return found

    def _open_one(self, step: _dial.Connect) -> "Union[tuple[_Connection, Claim], Loss]":
        """Connects to one address and waits for the first answer."""
        clock = self._config.clock
        until = clock() + step.budget_ns
        channel = make_channel(self._config.tls, self._config.tls_name(step.address))
        connection = self._connect(step, channel, until)
        with self._line.lock:
            self._line.check()
            connection.write(channel.start())
        while not channel.is_open:
            connection.wait(_remaining_ns(clock, until))
            self._pump(connection, channel)
        claim = Claim(self._request, clock, self._cancel, self._outcome.set)
        while claim.standing is Standing.ASKING:
            self._step(connection, claim, min(claim.until_due_ns(), _remaining_ns(clock, until)))
        return (connection, claim) if claim.refusal is None else claim.refusal

    def _connect(self, step: _dial.Connect, channel: Channel, until: int) -> _Connection:
        family, address = step.candidate
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connection = _Connection(sock, channel)
            self._line.connect(connection)
        except BaseException:
            sock.close()
            raise
        connection.connect(address)
        clock = self._config.clock
        while not connection.poll(selectors.EVENT_WRITE, min(SLICE_NS, _remaining_ns(clock, until))):
            self._line.check()
        self._line.check()
        connection.connected()
        return connection

    def _pump(self, connection: _Connection, channel: Channel) -> bytes:
        with self._line.lock:
            self._line.check()
            connection.write(b"")
            plain = connection.read()
            connection.write(channel.pending())
            return plain

    def _step(self, connection: _Connection, claim: Claim, timeout_ns: int) -> None:
        """Writes what is to be written, then waits for the next thing to happen and takes it in."""
        channel = connection.channel
        try:
            with self._line.lock:
                self._line.check()
                frame = claim.transmit()
                connection.write(channel.send(frame) if frame else b"")
        except OSError as error:
            return self._failed(connection, claim, error)
        if not connection.wait(min(timeout_ns, claim.until_due_ns())):
            return claim.tick()
        try:
            plain = self._pump(connection, channel)
        except EOFError:
            return claim.disconnected()
        except OSError as error:
            return claim.disconnected(str(error) or type(error).__name__)
        # Outside the line's lock, since callbacks of the user's may run in it.
        claim.receive(plain)

    def _failed(self, connection: _Connection, claim: Claim, error: OSError) -> None:
        """Writing failed. The server's last word may lie in the socket and say more than the system's error."""
        try:
            with self._line.lock:
                plain = connection.read()
            claim.receive(plain)
        except (OSError, EOFError):
            pass
        claim.disconnected(str(error) or type(error).__name__)


def _remaining_ns(clock: Clock, until: int) -> int:
    remaining_ns = until - clock()
    if remaining_ns <= 0:
        raise _NoTime
    return remaining_ns
