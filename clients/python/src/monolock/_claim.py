"""A session together with its clock and those who wait for its outcome: what both drivers share.

Each input reads the clock itself, right when it is made, and what it brought about is told before it returns. So a driver only moves bytes
and cannot forget to tell.
"""

from __future__ import annotations

from typing import Callable, List, Optional, Union

from ._cancel import Cancel
from ._clock import Clock
from ._errors import Loss, LossReason, LostError, MonolockError
from ._hold import Hold
from ._session import Event, Granted, Lost, Refused, Session, SessionConfig, Standing

#: What acquiring came to.
Outcome = Union[Hold, MonolockError]


class Claim:
    """A claim on a connection that has just been made."""

    def __init__(
        self, config: SessionConfig, clock: Clock, cancel: Optional[Cancel], tell: Callable[[Outcome], object]
    ) -> None:
        self._session = Session(clock(), config)
        self._clock = clock
        self._cancel = cancel
        self._tell_outcome = tell
        self.hold: Optional[Hold] = None
        #: Why the session ended before its claim was taken in, where it did.
        self.refusal: Optional[Loss] = None

    @property
    def standing(self) -> Standing:
        return self._session.standing

    def transmit(self) -> bytes:
        """What is to be written now."""
        return self._session.transmit(self._clock())

    def receive(self, data: bytes) -> None:
        self._tell(self._session.receive(self._clock(), data))

    def tick(self) -> None:
        self._tell(self._session.tick(self._clock()))

    def disconnected(self, detail: str = "") -> None:
        self._tell(self._session.disconnected(self._clock(), detail))

    def is_over(self) -> bool:
        """Whether the connection is to be closed."""
        return self.standing is Standing.OVER or (self.hold is not None and not self.hold.is_held())

    def until_due_ns(self) -> int:
        """How long until :meth:`tick` is due; zero when it is, or when all is over."""
        deadline = self._session.next_deadline()
        return 0 if deadline is None else max(0, deadline - self._clock())

    def abandon(self) -> None:
        """Whoever lets this claim go without its end leaves nobody waiting. A hold that was released, and an outcome that is known,
        are past being told."""
        loss = Loss(LossReason.CLOSED)
        if self.hold is not None:
            self.hold.end(loss)
        elif self.standing is Standing.QUEUED:
            self._tell_outcome(LostError(self._session.config.name, loss))

    def _tell(self, events: List[Event]) -> None:
        until = self._session.gives_up_at()
        if self.hold is not None and until is not None:
            self.hold.believe_until(until)
        for event in events:
            if isinstance(event, Granted):
                self.hold = Hold(self._clock, self._session, self._cancel)
                self._tell_outcome(self.hold)
            elif isinstance(event, Refused):
                self.refusal = event.loss
            elif isinstance(event, Lost):
                self._lost(event.loss)

    def _lost(self, loss: Loss) -> None:
        if self.hold is None:
            self._tell_outcome(LostError(self._session.config.name, loss))
        else:
            self.hold.end(loss)
