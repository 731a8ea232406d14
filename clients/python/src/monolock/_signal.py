"""Something that happens once, told to whoever asks before or after, from any thread.

A signal is set with a value, or closed without one when it can no longer happen. Callbacks run outside its lock, so they may use it.
"""

from __future__ import annotations

import logging
import threading
from typing import Callable, Generic, List, Optional, TypeVar

T = TypeVar("T")

#: Called once: with the value, or with ``None`` when the signal is closed.
Callback = Callable[[Optional[T]], object]

logger = logging.getLogger("monolock")


class Signal(Generic[T]):
    def __init__(self) -> None:
        # Reentrant: a handler of the operating system's signals may run in the midst of it and ask.
        self._condition = threading.Condition(threading.RLock())
        self._value: Optional[T] = None
        self._ended = False
        self._callbacks: List[Callback[T]] = []

    def set(self, value: T) -> bool:
        """The first value counts; says whether this was it."""
        return self._end(value)

    def close(self) -> None:
        """It will never happen, where it has not yet."""
        self._end(None)

    @property
    def value(self) -> Optional[T]:
        return self._value

    def wait(self, timeout_s: Optional[float] = None) -> Optional[T]:
        """Waits on this thread. ``None``: the time is over, or the signal is closed."""
        limit = None if timeout_s is None else min(timeout_s, threading.TIMEOUT_MAX)
        with self._condition:
            self._condition.wait_for(lambda: self._ended, limit)
            return self._value

    def subscribe(self, callback: Callback[T]) -> Callable[[], None]:
        """Calls ``callback`` at the end; at once and on this thread, if that has come. Returns what takes it back."""
        with self._condition:
            if not self._ended:
                self._callbacks.append(callback)
                return lambda: self._unsubscribe(callback)
        _call(callback, self._value)
        return lambda: None

    def renew_lock(self) -> None:
        """In the child of a fork: the thread that had the lock may not exist here."""
        self._condition = threading.Condition(threading.RLock())

    def _unsubscribe(self, callback: Callback[T]) -> None:
        with self._condition:
            self._callbacks = [other for other in self._callbacks if other is not callback]

    def _end(self, value: Optional[T]) -> bool:
        with self._condition:
            if self._ended:
                return False
            self._value, self._ended = value, True
            callbacks, self._callbacks = self._callbacks, []
            self._condition.notify_all()
        for callback in callbacks:
            _call(callback, value)
        return True


def _call(callback: Callback[T], value: Optional[T]) -> None:
    try:
        callback(value)
    except Exception:
        logger.exception("a callback failed")
