"""Which address to try next, and how long: one is dead, another accepts and stays mute, a third one serves.

Pure: it is told what came of each step. The connect timeout bounds the whole attempt; every candidate gets an even share of what is left
for those that are still to come, so nobody's silence uses up the time of the next.
"""

from __future__ import annotations

import ipaddress
import socket
from dataclasses import dataclass
from typing import Any, List, Optional, Sequence, Tuple, Union

from . import _errors, _wire
from ._config import Config
from ._errors import Attempt, Loss, MonolockError

#: One thing that a name resolves to: the address family and the socket address.
Candidate = Tuple[int, Tuple[Any, ...]]


@dataclass(frozen=True)
class LookUp:
    """Look this up and report to :meth:`Dial.found`."""

    address: str
    budget_ns: int


@dataclass(frozen=True)
class Connect:
    """Connect and wait for the first answer; report a failure to :meth:`Dial.failed`."""

    #: As configured: what the certificate is checked against.
    address: str
    candidate: Candidate
    budget_ns: int


Step = Union[LookUp, Connect]


class Dial:
    """One attempt at reaching a server."""

    def __init__(self, now: int, config: Config, name: str) -> None:
        self._config = config
        self._name = name
        self._deadline = now + config.connect_timeout_ns
        self._looked_up = 0
        self._address = ""
        self._candidates: List[Candidate] = []
        self._candidates_until = now
        self._failures: List[Attempt] = []

    def next_step(self, now: int) -> Step:
        """What to do next. Where nobody is left, raises the error that says so."""
        if self._candidates:
            budget_ns = max(0, self._candidates_until - now) // len(self._candidates)
            return Connect(self._address, self._candidates.pop(0), budget_ns)
        addresses = self._config.addresses
        if self._looked_up == len(addresses):
            raise _errors.unreachable(self._name, self._failures)
        budget_ns = max(0, self._deadline - now) // (len(addresses) - self._looked_up)
        self._address = addresses[self._looked_up]
        self._looked_up += 1
        self._candidates_until = now + budget_ns
        return LookUp(self._address, budget_ns)

    def found(self, step: LookUp, found: Union[Sequence[Candidate], Exception, None]) -> None:
        """The look-up came to this; ``None``: to nothing in time."""
        if found is None:
            failure = no_time(step.budget_ns)
        elif isinstance(found, Exception):
            failure = f"the name does not resolve: {found}"
        elif not found:
            failure = "the name has no address"
        else:
            self._candidates = list(found)
            return
        self._failures.append(Attempt(step.address, failure))

    def failed(self, step: Connect, failure: Union[Loss, Exception, None]) -> None:
        """This address did not take the claim in; ``None``: not in time. Raises where the server said that no other one will either
        (a code from 0x10 up)."""
        address = show(step.candidate)
        if isinstance(failure, Loss):
            if failure.code is not None and _wire.is_client_error(failure.code):
                raise _errors.refused(self._name, address, failure)
            self._failures.append(Attempt(address, str(failure), failure.code))
        else:
            told = no_time(step.budget_ns) if failure is None else f"cannot connect: {failure}"
            self._failures.append(Attempt(address, told))


def no_time(budget_ns: int) -> str:
    return f"no answer within {budget_ns / 1e9:.1f} s"


def show(candidate: Candidate) -> str:
    host, port = candidate[1][0], candidate[1][1]
    return f"[{host}]:{port}" if ":" in str(host) else f"{host}:{port}"


def literal(host: str, port: int) -> Optional[Sequence[Candidate]]:
    """The one candidate of a host that is no name but an address: there is nothing to look up."""
    try:
        version = ipaddress.ip_address(host).version
    except ValueError:
        return None
    if "%" in host:
        return None
    if version == 4:
        return [(socket.AF_INET, (host, port))]
    return [(socket.AF_INET6, (host, port, 0, 0))]
