"""What a client is told, checked before anything is dialled. Shared by both drivers."""

from __future__ import annotations

import ssl
from datetime import timedelta
from typing import List, Optional, Sequence, Tuple, Union

from . import _wire
from ._clock import Clock, now_ns
from ._errors import InvalidError
from ._session import SessionConfig

#: The shortest lease that a client takes on, in milliseconds. Timers fire up to 10 ms late; a heartbeat that goes out after a quarter of the
#: lease plus that must still have its answer by 0.8 leases: 0.55 leases must be more than 10 ms.
MIN_LEASE_MS = 20

DEFAULT_CONNECT_TIMEOUT = timedelta(seconds=5)

_MICROSECOND = timedelta(microseconds=1)
_MILLISECOND = timedelta(milliseconds=1)


class Config:
    """The settings of one client."""

    def __init__(
        self,
        addresses: Union[str, Sequence[str]],
        tls: Optional[ssl.SSLContext],
        server_name: Optional[str],
        connect_timeout: timedelta,
        max_hold: Optional[timedelta],
        clock: Optional[Clock],
    ) -> None:
        self.addresses: List[str] = [addresses] if isinstance(addresses, str) else list(addresses)
        if not self.addresses:
            raise InvalidError("no server address was given")
        for address in self.addresses:
            split_address(address)
        if tls is not None and not isinstance(tls, ssl.SSLContext):
            raise InvalidError(f"tls must be an ssl.SSLContext, not {type(tls).__name__}")
        self.tls = tls
        self.server_name = server_name
        self.connect_timeout_ns = positive_ns("connect_timeout", connect_timeout)
        self.max_hold_ns = None if max_hold is None else positive_ns("max_hold", max_hold)
        self.clock = now_ns if clock is None else clock

    def request(self, name: str, lease: timedelta) -> SessionConfig:
        return SessionConfig(checked_name(name), checked_lease_ms(lease), self.max_hold_ns)

    def tls_name(self, address: str) -> Optional[str]:
        """The name that the server's certificate must bear."""
        return self.server_name if self.server_name is not None else split_address(address)[0]


def split_address(address: str) -> Tuple[str, int]:
    """``host:port``, ``[v6]:port``."""
    if not isinstance(address, str):
        raise InvalidError(f"a server address must be a str, not {type(address).__name__}")
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        host = ""
    if not colon or not host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) < 2**16:
        raise InvalidError(f"server address {address!r} is not of the form host:port")
    return host, int(port)


def checked_name(name: str) -> str:
    """1 to 255 bytes of UTF-8, taken raw."""
    if not isinstance(name, str):
        raise InvalidError(f"a lock name must be a str, not {type(name).__name__}")
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        raise InvalidError("a lock name must be valid Unicode, without lone surrogates") from None
    if not encoded:
        raise InvalidError("a lock name must not be empty")
    if len(encoded) > _wire.MAX_NAME_BYTES:
        raise InvalidError(f"a lock name has at most {_wire.MAX_NAME_BYTES} bytes of UTF-8, and this one has {len(encoded)}")
    return name


def checked_lease_ms(lease: timedelta) -> int:
    """Exact whole milliseconds that a client can keep, or an error."""
    if not isinstance(lease, timedelta):
        raise InvalidError(f"a lease must be a timedelta, not {type(lease).__name__}")
    lease_ms, rest = divmod(lease, _MILLISECOND)
    if rest:
        raise InvalidError(f"a lease must be a whole number of milliseconds, not {lease!r}")
    if not 0 < lease_ms <= _wire.MAX_LEASE_MS:
        raise InvalidError(f"a lease must be from 1 to {_wire.MAX_LEASE_MS} ms, not {lease_ms} ms")
    if lease_ms < MIN_LEASE_MS:
        raise InvalidError(f"a lease of {lease_ms} ms is too short to be kept: at least {MIN_LEASE_MS} ms are needed")
    return lease_ms


def nanoseconds(what: str, duration: timedelta) -> int:
    if not isinstance(duration, timedelta):
        raise InvalidError(f"{what} must be a timedelta, not {type(duration).__name__}")
    if duration < timedelta(0):
        raise InvalidError(f"{what} must not be negative")
    return duration // _MICROSECOND * 1000


def positive_ns(what: str, duration: timedelta) -> int:
    duration_ns = nanoseconds(what, duration)
    if duration_ns == 0:
        raise InvalidError(f"{what} must be positive")
    return duration_ns
