"""A hold, and how it learns of its end: what both clients show of a lock.

A hold is believed in until an absolute instant, which the session moves on with every confirmation. Looking compares that instant with the
clock, so the answer is right even where no thread or event loop has run for hours; and a look that finds it past ends the hold for good,
whatever is read from the socket afterwards.
"""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Optional

from . import _fork
from ._cancel import Cancel
from ._clock import Clock
from ._errors import Loss, LossReason
from ._session import Session
from ._signal import Signal

#: Every instant is past this one.
_OVER = -1


class Hold:
    """A lock that was granted. Made by the driver; seen through the views of the public classes."""

    def __init__(self, clock: Clock, session: Session, cancel: Optional[Cancel]) -> None:
        token, until = session.token, session.gives_up_at()
        assert token is not None, "a hold is made at the grant"
        self.name = session.config.name
        self.lease_ms = session.config.lease_ms
        self.token = token
        #: Set with the loss; closed at the release.
        self.lost: Signal[Loss] = Signal()
        #: Set when the work is asked to stop: by the caller's switch or by the loss.
        self.stop: Signal[bool] = Signal()
        self._made_in = _fork.generation()
        self._clock = clock
        self._limit = session.hold_ends_at()
        self._lock = threading.RLock()
        self._until = _OVER if until is None else until
        self._cancel = cancel
        self._unsubscribe = cancel._subscribe(self._cancelled) if cancel is not None else lambda: None

    @property
    def lease(self) -> timedelta:
        return timedelta(milliseconds=self.lease_ms)

    def is_held(self) -> bool:
        """By the clock. Once false, it stays false."""
        self.check_process()
        with self._lock:
            if self._until == _OVER:
                return False
            if self._clock() < self._until:
                return True
            at_its_limit = self._limit is not None and self._limit <= self._until
            self._until = _OVER
        self._tell(Loss(LossReason.MAX_HOLD if at_its_limit else LossReason.TIMEOUT))
        return False

    def loss(self) -> Optional[Loss]:
        """How it was lost, if it was: by the clock."""
        self.is_held()
        return self.lost.value

    def believe_until(self, instant: int) -> None:
        """Moves the instant on, unless the hold has ended."""
        with self._lock:
            if self._until != _OVER:
                self._until = instant

    def end(self, loss: Loss) -> None:
        """The hold is lost. First it is over, then it is told."""
        with self._lock:
            self._until = _OVER
        self._tell(loss)

    def release(self) -> None:
        """The hold is over and was not lost, unless it was."""
        with self._lock:
            self._until = _OVER
        self._unsubscribe()
        self.lost.close()
        self.stop.close()

    def check_process(self) -> None:
        _fork.check(self._made_in, f"the hold on lock {self.name!r}")

    def is_own(self) -> bool:
        """Whether it was made in this process, not in the one that this was forked from."""
        return _fork.is_own(self._made_in)

    def _cancelled(self) -> None:
        self.stop.set(True)

    def _tell(self, loss: Loss) -> None:
        self._unsubscribe()
        self.lost.set(loss)
        self.stop.set(True)

