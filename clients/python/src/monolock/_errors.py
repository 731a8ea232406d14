"""The errors of the client: one class a kind, and why a lock was lost.

The kinds and the loss reasons bear the same names in every monolock client, and none is found by reading text. What a server wrote for
people is escaped before it is shown, since it may hold anything.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, Optional, Sequence

from . import _wire


class ErrorKind(str, Enum):
    """What kind of failure a :class:`MonolockError` is."""

    CANCELLED = "cancelled"
    WAIT_TIMEOUT = "wait_timeout"
    CONTENDED = "contended"
    DENIED = "denied"
    LOST = "lost"
    UNREACHABLE = "unreachable"
    INVALID = "invalid"

    def __str__(self) -> str:
        return self.value


class LossReason(str, Enum):
    """Why a claim ended that nobody released."""

    #: Nothing was confirmed for 0.8 leases, counted from the sending of the last confirmed frame.
    TIMEOUT = "timeout"
    #: The connection ended.
    CLOSED = "closed"
    #: The server sent an ``ERROR``.
    SERVER_ERROR = "server_error"
    #: The server sent what the protocol forbids.
    PROTOCOL_VIOLATION = "protocol_violation"
    #: The hold lasted as long as ``max_hold`` allows.
    MAX_HOLD = "max_hold"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True)
class Loss:
    """How a lock, or a place in its queue, was lost."""

    reason: LossReason
    #: The code of the server's ``ERROR``, where that was the reason.
    code: Optional[int] = None
    #: More about it, for people: safe to print.
    detail: str = ""

    def __str__(self) -> str:
        if self.reason is LossReason.TIMEOUT:
            return "the server confirmed nothing for 0.8 of the lease"
        if self.reason is LossReason.CLOSED:
            return f"the connection failed: {self.detail}" if self.detail else "the server closed the connection"
        if self.reason is LossReason.SERVER_ERROR:
            return f"the server said 0x{self.code or 0:02x}: {self.detail}"
        if self.reason is LossReason.PROTOCOL_VIOLATION:
            return f"the server broke the protocol: {self.detail}"
        return "the hold lasted longer than max_hold"


class MonolockError(Exception):
    """Why a call of the client failed. Catch it for all, or one of its seven subclasses."""

    kind: ClassVar[ErrorKind]

    def __init__(self, message: str, *, code: Optional[int] = None) -> None:
        super().__init__(message)
        #: The code of the server's ``ERROR``, where one came; of several addresses, that of the last which sent one.
        self.code = code

    @property
    def is_retryable(self) -> bool:
        """Whether the same call may succeed later without anybody changing it."""
        return False

    @property
    def _is_worth_another_attempt(self) -> bool:
        """Whether another attempt at obtaining the lock makes sense within the same call."""
        return self.kind in (ErrorKind.UNREACHABLE, ErrorKind.LOST) and self.is_retryable


class AcquireCancelledError(MonolockError):
    """The caller's :class:`Cancel` was used before the lock was obtained."""

    kind = ErrorKind.CANCELLED


class WaitTimeoutError(MonolockError):
    """The wait limit passed before the lock was obtained."""

    kind = ErrorKind.WAIT_TIMEOUT

    @property
    def is_retryable(self) -> bool:
        return True


class ContendedError(MonolockError):
    """The lock is held by another, and the call was not to wait."""

    kind = ErrorKind.CONTENDED

    @property
    def is_retryable(self) -> bool:
        return True


class DeniedError(MonolockError):
    """The server's access-control list refuses this lock (code 0x18)."""

    kind = ErrorKind.DENIED


class LostError(MonolockError):
    """The place in the queue or the lock itself was lost; :attr:`loss` says how."""

    kind = ErrorKind.LOST

    def __init__(self, name: str, loss: Loss) -> None:
        super().__init__(f"lost lock {name!r}: {loss}", code=loss.code)
        self.name = name
        self.loss = loss

    def __reduce__(self) -> "tuple[type[LostError], tuple[str, Loss]]":
        return type(self), (self.name, self.loss)

    @property
    def is_retryable(self) -> bool:
        final = self.code is not None and _wire.is_client_error(self.code)
        return self.loss.reason is not LossReason.MAX_HOLD and not final


class UnreachableError(MonolockError):
    """No server took the claim in: no connection, no answer in time, or a server condition (a code below 0x10)."""

    kind = ErrorKind.UNREACHABLE

    @property
    def is_retryable(self) -> bool:
        return True


class InvalidError(MonolockError, ValueError):
    """What was asked for is wrong and will be wrong again: found before dialling, or said by the server (a code from 0x10 up)."""

    kind = ErrorKind.INVALID


def cancelled(name: str) -> MonolockError:
    return AcquireCancelledError(f"cancelled while acquiring lock {name!r}")


def wait_timeout(name: str, wait_s: float) -> MonolockError:
    return WaitTimeoutError(f"lock {name!r} was not obtained within {wait_s:g} s")


def contended(name: str) -> MonolockError:
    return ContendedError(f"lock {name!r} is held by another")


def refused(name: str, address: str, loss: Loss) -> MonolockError:
    """The server said with a code from 0x10 up that no attempt will do better."""
    message = f"{address} refused lock {name!r} with 0x{loss.code or 0:02x}: {loss.detail}"
    if loss.code == _wire.NOT_AUTHORIZED:
        return DeniedError(message, code=loss.code)
    return InvalidError(message, code=loss.code)


@dataclass(frozen=True)
class Attempt:
    """One address that was tried, and what came of it."""

    address: str
    failure: str
    code: Optional[int] = None


def unreachable(name: str, attempts: Sequence[Attempt]) -> MonolockError:
    told = "; ".join(f"{attempt.address}: {attempt.failure}" for attempt in attempts)
    codes = [attempt.code for attempt in attempts if attempt.code is not None]
    return UnreachableError(f"no server took the claim on lock {name!r} in: {told}", code=codes[-1] if codes else None)


_JOINED = "__monolock_loss__"


def join_loss(error: BaseException, name: str, loss: Loss) -> None:
    """The guarded work's own error stands, and the loss is joined to it."""
    if getattr(error, _JOINED, None) is not None:
        return
    try:
        setattr(error, _JOINED, loss)
        if sys.version_info >= (3, 11):
            error.add_note(f"(and lock {name!r} was lost: {loss})")
    except Exception:  # An exception type that takes no attributes: its own error still stands.
        pass


def loss_of(error: BaseException) -> Optional[Loss]:
    """How the lock was lost that guarded the work which failed with ``error``; ``None`` where it was not lost."""
    if isinstance(error, LostError):
        return error.loss
    joined = getattr(error, _JOINED, None)
    return joined if isinstance(joined, Loss) else None
