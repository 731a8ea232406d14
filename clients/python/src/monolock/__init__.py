"""The Python client of monolock: named locks with leases and fencing tokens.

::

    from datetime import timedelta
    import monolock

    client = monolock.Client("127.0.0.1:7070")
    with client.lock("nightly-import", lease=timedelta(seconds=2)) as lock:
        import_everything(token=lock.token)

There are two clients with one vocabulary: :class:`Client` on threads and :class:`AsyncClient` on asyncio. Both move bytes for one pure session
machine, which keeps the rules of the protocol.
"""

from __future__ import annotations

from ._aio import AsyncClient, AsyncHeld, AsyncHoldEvent, AsyncLock, AsyncLockContext
from ._blocking import Client, Held, HoldEvent, Lock, LockContext
from ._cancel import Cancel
from ._config import MIN_LEASE_MS
from ._errors import (
    AcquireCancelledError,
    ContendedError,
    DeniedError,
    ErrorKind,
    InvalidError,
    Loss,
    LossReason,
    LostError,
    MonolockError,
    UnreachableError,
    WaitTimeoutError,
    loss_of,
)

__version__ = "0.1.0"

__all__ = [
    "MIN_LEASE_MS",
    "AcquireCancelledError",
    "AsyncClient",
    "AsyncHeld",
    "AsyncHoldEvent",
    "AsyncLock",
    "AsyncLockContext",
    "Cancel",
    "Client",
    "ContendedError",
    "DeniedError",
    "ErrorKind",
    "Held",
    "HoldEvent",
    "InvalidError",
    "Lock",
    "LockContext",
    "Loss",
    "LossReason",
    "LostError",
    "MonolockError",
    "UnreachableError",
    "WaitTimeoutError",
    "loss_of",
]
