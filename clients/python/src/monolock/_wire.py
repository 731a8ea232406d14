"""Frames to bytes and back (``docs/protocol.md``, "Frames"). Pure; nothing here knows what a frame means for a session."""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Optional, Tuple, Union

VERSION = 1
MAX_NAME_BYTES = 255
MAX_LEASE_MS = 2**32 - 1
HEARTBEAT = b"\x02"

#: Codes below this one are server conditions; from it up they are client errors (``docs/protocol.md``, "Errors").
FIRST_CLIENT_ERROR = 0x10
SERVER_SHUTTING_DOWN = 0x01
NOT_AUTHORIZED = 0x18


def is_client_error(code: int) -> bool:
    """Whether the same bytes will fail again. The range decides, never a list."""
    return code >= FIRST_CLIENT_ERROR


@dataclass(frozen=True)
class Waiting:
    """``WAITING``: the session stands in the queue."""


@dataclass(frozen=True)
class Acquired:
    """``ACQUIRED``: the session owns the lock."""

    token: int


@dataclass(frozen=True)
class ServerError:
    """``ERROR``: the server ends the session."""

    code: int
    reason: bytes


ServerFrame = Union[Waiting, Acquired, ServerError]


class UnknownFrame(Exception):
    """Bytes that are no frame of this version."""


def encode_acquire(name: bytes, lease_ms: int) -> bytes:
    return struct.pack(">BBIH", 0x01, VERSION, lease_ms, len(name)) + name


def decode_server(data: bytes) -> Optional[Tuple[ServerFrame, int]]:
    """The frame at the start of ``data`` and its length in bytes; ``None`` where its rest has not come yet."""
    if not data:
        return None
    kind = data[0]
    if kind == 0x11:
        return Waiting(), 1
    if kind == 0x12:
        if len(data) < 9:
            return None
        token = int.from_bytes(data[1:9], "big")
        if token == 0:
            raise UnknownFrame("an ACQUIRED with token 0")
        return Acquired(token), 9
    if kind == 0x13:
        if len(data) < 3 or len(data) < 3 + data[2]:
            return None
        end = 3 + data[2]
        return ServerError(data[1], bytes(data[3:end])), end
    raise UnknownFrame(f"unknown frame type 0x{kind:02x}")
