"""Names to addresses, anew at each attempt.

The system's resolver blocks and cannot be interrupted, so it runs on a thread of its own and callers wait for its answer as long as they
like. There is at most one such thread for each address of a client: an attempt that comes while a look-up is under way waits for that one,
so a resolver that hangs collects no threads.
"""

from __future__ import annotations

import socket
import threading
from typing import Dict, List, Sequence, Union

from . import _dial, _fork
from ._config import split_address
from ._signal import Signal

#: What a look-up finds.
Found = Union[Sequence[_dial.Candidate], Exception]


class Resolver(_fork.AtFork):
    """The look-ups of one client."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._under_way: Dict[str, Signal[Found]] = {}
        _fork.register(self)

    def look_up(self, address: str) -> "Signal[Found]":
        """Looks ``host:port`` up."""
        host, port = split_address(address)
        answer: Signal[Found] = Signal()
        literal = _dial.literal(host, port)
        if literal is not None:
            answer.set(literal)
            return answer
        with self._lock:
            under_way = self._under_way.get(address)
            if under_way is not None:
                return under_way
            self._under_way[address] = answer
        thread = threading.Thread(
            target=self._run, args=(address, host, port, answer), name="monolock-lookup", daemon=True
        )
        try:
            thread.start()
        except RuntimeError as error:
            self._answer(address, answer, error)
        return answer

    def after_fork_in_child(self) -> None:
        self._lock = threading.RLock()
        self._under_way = {}

    def _run(self, address: str, host: str, port: int, answer: "Signal[Found]") -> None:
        found: Found
        try:
            found = _getaddrinfo(host, port)
        except Exception as error:
            found = error
        self._answer(address, answer, found)

    def _answer(self, address: str, answer: "Signal[Found]", found: Found) -> None:
        with self._lock:
            self._under_way.pop(address, None)
        answer.set(found)


def _getaddrinfo(host: str, port: int) -> Sequence[_dial.Candidate]:
    found: List[_dial.Candidate] = []
    for family, _kind, _protocol, _name, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        candidate: _dial.Candidate = (int(family), address)
        if candidate not in found:
            found.append(candidate)
    return found
