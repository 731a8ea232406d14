"""A server that does what a test says, and nothing else."""

from __future__ import annotations

import socket
import struct
import threading
from datetime import timedelta
from types import TracebackType
from typing import Callable, List, Optional, Type

from patience import PATIENCE_S, Clock

WAITING = b"\x11"


def acquired(token: int) -> bytes:
    return b"\x12" + token.to_bytes(8, "big")


def error(code: int, reason: str = "because") -> bytes:
    encoded = reason.encode()
    return bytes([0x13, code, len(encoded)]) + encoded


class Connection:
    def __init__(self, sock: socket.socket) -> None:
        self.socket = sock
        sock.settimeout(PATIENCE_S)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def read(self, count: int) -> bytes:
        data = b""
        while len(data) < count:
            piece = self.socket.recv(count - len(data))
            if not piece:
                raise ConnectionError(f"the client closed, {len(data)} of {count} bytes came")
            data += piece
        return data

    def read_acquire(self) -> "tuple[int, str]":
        """The lease in milliseconds and the name."""
        kind, version, lease_ms, name_bytes = struct.unpack(">BBIH", self.read(8))
        assert (kind, version) == (1, 1)
        return lease_ms, self.read(name_bytes).decode()

    def read_heartbeat(self) -> None:
        assert self.read(1) == b"\x02"

    def read_to_end(self) -> bytes:
        """What comes until the client closes."""
        data = b""
        while True:
            try:
                piece = self.socket.recv(4096)
            except ConnectionResetError:
                return data
            if not piece:
                return data
            data += piece

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def grant(self, token: int = 41) -> "Connection":
        self.read_acquire()
        self.send(acquired(token))
        return self

    def queue(self) -> "Connection":
        self.read_acquire()
        self.send(WAITING)
        return self

    def queue_late(self, clock: Clock) -> "Connection":
        """Answers a quarter of the lease late: the heartbeat that follows at once shows that the client knows its place."""
        lease_ms, _name = self.read_acquire()
        clock.step(timedelta(milliseconds=lease_ms) / 4)
        self.send(WAITING)
        self.read_heartbeat()
        return self

    def serve(self, reply: bytes) -> None:
        """Answers every heartbeat until the client closes."""
        try:
            while self.socket.recv(1):
                self.socket.sendall(reply)
        except OSError:
            pass

    def close(self) -> None:
        self.socket.close()

    def reset(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.socket.close()


class Scripted:
    def __init__(self) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._listener.settimeout(PATIENCE_S)
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        #: Those that were accepted, the latest last.
        self.connections: List[Connection] = []

    def accept(self) -> Connection:
        connection = Connection(self._listener.accept()[0])
        self.connections.append(connection)
        return connection

    def grant(self, token: int = 41) -> Connection:
        return self.accept().grant(token)

    def queue(self) -> Connection:
        return self.accept().queue()

    def visit(self) -> None:
        """Connects and leaves: wakes up whoever accepts."""
        socket.create_connection(self._listener.getsockname()).close()

    def close(self) -> None:
        self._listener.close()
        for connection in self.connections:
            connection.close()


class Background:
    """Runs what the other side does meanwhile; its failure is the test's."""

    def __init__(self, run: Callable[[], object]) -> None:
        self._run = run
        self._error: Optional[BaseException] = None
        self._thread = threading.Thread(target=self._guarded, daemon=True)

    def __enter__(self) -> "Background":
        self._thread.start()
        return self

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._thread.join(PATIENCE_S)
        if self._error is not None:
            raise self._error
        assert error is not None or not self._thread.is_alive(), "the other side has not ended"

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as error:
            self._error = error


class Everybody(Background):
    """Serves everybody who comes while it lasts, one after the other. A client with little time may hang up at any moment."""

    def __init__(self, scripted: Scripted, serve: Callable[[Connection], object]) -> None:
        super().__init__(self._serve_all)
        self._scripted = scripted
        self._serve = serve
        self._over = threading.Event()

    def __exit__(
        self, kind: Optional[Type[BaseException]], error: Optional[BaseException], trace: Optional[TracebackType]
    ) -> None:
        self._over.set()
        self._scripted.visit()
        super().__exit__(kind, error, trace)

    def _serve_all(self) -> None:
        while not self._over.is_set():
            connection = self._scripted.accept()
            try:
                self._serve(connection)
            except ConnectionError:
                pass
