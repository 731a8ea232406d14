"""The one module that reads a clock.

A lease runs on at the server while this machine sleeps, so the clock must run on as well: ``CLOCK_BOOTTIME`` on Linux, ``CLOCK_MONOTONIC``
on Apple systems, where that one counts sleep. Elsewhere it is ``time.monotonic``, which may stand still during suspend: there a lock that
was lost in the machine's sleep is found out when the first deadline after it passes.
"""

from __future__ import annotations

import sys
import time
from typing import Callable

#: Tells the present instant in nanoseconds from an origin of its own.
Clock = Callable[[], int]

MILLISECOND = 1_000_000
SECOND = 1_000_000_000


def _system_clock() -> Clock:
    if sys.platform == "linux":
        boottime = time.CLOCK_BOOTTIME
        return lambda: time.clock_gettime_ns(boottime)
    if sys.platform == "darwin":
        monotonic = time.CLOCK_MONOTONIC
        return lambda: time.clock_gettime_ns(monotonic)
    return time.monotonic_ns


now_ns: Clock = _system_clock()
