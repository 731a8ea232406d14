"""Cancelling from outside: one switch for any number of calls, of both clients."""

from __future__ import annotations

from datetime import timedelta
from typing import Callable, Optional

from . import _config, _fork
from ._signal import Signal


class Cancel(_fork.AtFork):
    """A switch that ends the acquiring of locks and asks guarded work to stop.

    Pass it as ``cancel=``. While a lock is still being acquired, using it makes the call raise :class:`AcquireCancelledError`. Once work
    runs under the lock it only sets the work's ``stop`` event: heartbeats go on, and the lock is released when the work has ended.
    May be used from any thread, and from a signal handler.
    """

    def __init__(self) -> None:
        self._signal: Signal[bool] = Signal()
        _fork.register(self)

    def cancel(self) -> None:
        """Uses it. Twice is harmless."""
        self._signal.set(True)

    def is_cancelled(self) -> bool:
        """Whether it was used."""
        return self._signal.value is not None

    def wait(self, timeout: Optional[timedelta] = None) -> bool:
        """Waits on this thread until it is used, at most so long; says whether it was."""
        timeout_s = None if timeout is None else _config.nanoseconds("timeout", timeout) / 1e9
        return self._signal.wait(timeout_s) is not None

    def after_fork_in_child(self) -> None:
        self._signal.renew_lock()

    def _subscribe(self, callback: Callable[[], object]) -> Callable[[], None]:
        return self._signal.subscribe(lambda used: callback() if used else None)
