"""What lies between a session's bytes and the socket's: nothing, or TLS. Pure: both drivers move the bytes themselves.

So the socket stays a plain one, which any thread can shut down at once, and a handshake is as cancellable as a read.
"""

from __future__ import annotations

import ssl
from typing import Optional


class Channel:
    """No TLS."""

    #: Whether the session may speak.
    is_open = True

    def start(self) -> bytes:
        """The first bytes to write."""
        return b""

    def receive(self, raw: bytes) -> bytes:
        """What the server said in these bytes. Raises :class:`EOFError` where it said that it closes, :class:`ssl.SSLError` where TLS
        fails. Afterwards :meth:`pending` may have something."""
        return raw

    def pending(self) -> bytes:
        """What is to be written because of what was received."""
        return b""

    def send(self, plain: bytes) -> bytes:
        """The bytes to write for these."""
        return plain

    def farewell(self) -> bytes:
        """The last bytes to write."""
        return b""


class TlsChannel(Channel):
    def __init__(self, context: ssl.SSLContext, server_name: Optional[str]) -> None:
        self.is_open = False
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)

    def start(self) -> bytes:
        self._shake_hands()
        return self._outgoing.read()

    def receive(self, raw: bytes) -> bytes:
        self._incoming.write(raw)
        if not self.is_open and not self._shake_hands():
            return b""
        plain = b""
        while True:
            try:
                piece = self._tls.read(4096)
            except ssl.SSLWantReadError:
                return plain
            except ssl.SSLZeroReturnError:
                piece = b""
            if not piece and plain:
                # The close is told with the next bytes, which is the end of the connection.
                return plain
            if not piece:
                raise EOFError
            plain += piece

    def pending(self) -> bytes:
        return self._outgoing.read()

    def send(self, plain: bytes) -> bytes:
        self._tls.write(plain)
        return self._outgoing.read()

    def farewell(self) -> bytes:
        if not self.is_open:
            return b""
        try:
            self._tls.unwrap()
        except ssl.SSLError:
            # It wants the server's farewell, which nobody waits for.
            pass
        return self._outgoing.read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            return False
        self.is_open = True
        return True


def make_channel(context: Optional[ssl.SSLContext], server_name: Optional[str]) -> Channel:
    return Channel() if context is None else TlsChannel(context, server_name)
