"""When to try again after a failed attempt: exponential backoff with full jitter.

Pure: the randomness is an argument. A restart of the server sends every client here at once (``docs/protocol.md``, "What a client must do"), so
not even the first attempt goes out at a predictable instant.
"""

from __future__ import annotations

from typing import Callable, Optional

from . import _wire
from ._clock import MILLISECOND, SECOND
from ._errors import MonolockError

#: The most that a reconnect "at once" waits.
SPREAD_NS = 100 * MILLISECOND
FIRST_CEILING_NS = 100 * MILLISECOND
LAST_CEILING_NS = 5 * SECOND


class Backoff:
    """How long to wait between attempts at acquiring one lock."""

    def __init__(self) -> None:
        #: The next delay is anything up to this.
        self._ceiling_ns = FIRST_CEILING_NS
        #: Whether a shutdown of the server has been answered with a reconnect at once, and nothing good has come since.
        self._was_at_once = False

    def delay_ns(self, error: MonolockError, lasted_ns: int, random: Callable[[], float]) -> Optional[int]:
        """How long to wait after an attempt that lasted so long and failed with ``error``; ``None`` where trying again is no use.
        ``random`` gives a uniform number from 0 to 1."""
        if not error._is_worth_another_attempt:
            return None
        if lasted_ns >= LAST_CEILING_NS:
            self._ceiling_ns, self._was_at_once = FIRST_CEILING_NS, False
        if error.code == _wire.SERVER_SHUTTING_DOWN and not self._was_at_once:
            self._was_at_once = True
            return int(SPREAD_NS * random())
        delay = int(self._ceiling_ns * random())
        self._ceiling_ns = min(2 * self._ceiling_ns, LAST_CEILING_NS)
        return delay
