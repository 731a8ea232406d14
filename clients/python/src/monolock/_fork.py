"""What a fork leaves behind: nothing of the parent's claims.

The child gets a copy of every descriptor. It closes its copies without a word on the wire, so that the end of the parent is the end of its
connections; and it never uses a claim that is not its own: :func:`check` raises. A client keeps no connection, so the child may use it for
claims of its own.
"""

from __future__ import annotations

import os
import weakref
from typing import List

from ._errors import InvalidError


class AtFork:
    """Something that a child process has to put right."""

    def after_fork_in_child(self) -> None:
        raise NotImplementedError


_generation = 0
_registered: "weakref.WeakSet[AtFork]" = weakref.WeakSet()


def register(item: AtFork) -> None:
    _registered.add(item)


def generation() -> int:
    """Which process this is, counted in forks."""
    return _generation


def is_own(made_in: int) -> bool:
    return made_in == _generation


def check(made_in: int, what: str) -> None:
    """Raises where ``what`` was made before a fork, by the parent."""
    if made_in != _generation:
        raise InvalidError(f"{what} belongs to the process that this one was forked from")


def _after_in_child() -> None:
    global _generation
    _generation += 1
    items: List[AtFork] = list(_registered)
    for item in items:
        item.after_fork_in_child()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_in_child)
