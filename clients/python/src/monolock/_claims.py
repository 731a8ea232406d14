"""Which claims a client has open, so that a program can notice that it is about to queue behind itself.

The server knows sessions, not processes: a second claim on a lock that this process holds waits in the queue like any other. The client only
counts; it never takes one claim for another.
"""

from __future__ import annotations

import threading
from typing import Callable, Dict

from . import _fork


class Claims(_fork.AtFork):
    def __init__(self) -> None:
        self._lock = threading.RLock()
        #: Bounded by the claims that are open.
        self._open: Dict[str, int] = {}
        _fork.register(self)

    def enter(self, name: str) -> Callable[[], None]:
        """One more open claim, until what is returned is called; once more is harmless."""
        with self._lock:
            self._open[name] = self._open.get(name, 0) + 1
        made_in, left = _fork.generation(), threading.Event()

        def leave() -> None:
            if _fork.is_own(made_in) and not left.is_set():
                left.set()
                self._leave(name)

        return leave

    def count(self, name: str) -> int:
        with self._lock:
            return self._open.get(name, 0)

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._open = {}

    def _leave(self, name: str) -> None:
        with self._lock:
            count = self._open.pop(name) - 1
            if count:
                self._open[name] = count
