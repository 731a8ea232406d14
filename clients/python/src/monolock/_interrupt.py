"""Cancelling the body of an ``async with`` from within, as ``asyncio.timeout`` does, without taking anybody else's cancelling for one's own.

From Python 3.11 on a task counts who wants it cancelled. On 3.9 and 3.10 the count is kept here, for as long as a body runs.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Callable, Optional


class Interruption:
    """One body's. Used in its event loop only."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._is_armed = True
        self._has_fired = False
        self._counter = None if sys.version_info >= (3, 11) else _Counter.enter(task)
        if sys.version_info >= (3, 11):
            self._before = task.cancelling()

    def fire(self) -> None:
        """Cancels the body, if it still runs. To be called from the event loop, not from within the task: only then is the body at an
        ``await`` of its own, and the cancelling certain to reach it there."""
        if not self._is_armed or self._has_fired:
            return
        self._has_fired = True
        if self._counter is None:
            self._task.cancel()
        else:
            self._mark = self._counter.mark()
            self._counter.cancel_uncounted()

    def disarm(self, error: Optional[BaseException]) -> bool:
        """The body has ended with ``error``. Says whether that is this interruption's doing alone."""
        self._is_armed = False
        counter, self._counter = self._counter, None
        if counter is not None:
            counter.leave()
        if not self._has_fired:
            return False
        if sys.version_info >= (3, 11):
            alone = self._task.uncancel() <= self._before
        else:
            alone = counter is not None and not counter.somebody_else(self._mark, error)
        return alone and isinstance(error, asyncio.CancelledError)


class _Mark:
    """What was known of others when an interruption fired."""

    def __init__(self, cancels: int, is_pending: bool) -> None:
        self.cancels = cancels
        self.is_pending = is_pending


class _Counter:
    """Counts the calls of one task's ``cancel`` that are not interruptions, by standing in for it."""

    def __init__(self, task: "asyncio.Task[Any]") -> None:
        self._task = task
        self._scopes = 0
        self._cancels = 0
        self._cancel: Callable[..., bool] = task.cancel

    @classmethod
    def enter(cls, task: "asyncio.Task[Any]") -> "_Counter":
        counter: Optional[_Counter] = getattr(getattr(task, "cancel", None), "__self__", None)
        if not isinstance(counter, _Counter):
            counter = cls(task)
            setattr(task, "cancel", counter.cancel_counted)
        counter._scopes += 1
        return counter

    def leave(self) -> None:
        self._scopes -= 1
        if self._scopes == 0:
            # Not through `__dict__`, which the tasks written in C do not show.
            delattr(self._task, "cancel")

    def cancel_counted(self, *args: Any, **named: Any) -> bool:
        self._cancels += 1
        return self._cancel(*args, **named)

    def cancel_uncounted(self) -> None:
        self._cancel()

    def mark(self) -> _Mark:
        """Whether a cancelling is on its way that has not reached the task: these versions deliver both as one."""
        task: Any = self._task
        waiter = task._fut_waiter
        pending = task._must_cancel or (waiter is not None and waiter.cancelled())
        return _Mark(self._cancels, bool(pending) and self._cancels > 0)

    def somebody_else(self, mark: _Mark, error: Optional[BaseException]) -> bool:
        """Whether another wants the task cancelled as well: since the mark, or before it and not yet dealt with by the body."""
        if self._cancels > mark.cancels or mark.is_pending:
            return True
        context = None if error is None else error.__context__
        while context is not None:
            if isinstance(context, asyncio.CancelledError):
                return self._cancels > 0
            context = context.__context__
        return False
