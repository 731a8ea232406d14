"""The servers that the tests speak to: a real one, and one that a test scripts."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from pathlib import Path
from typing import Iterator

import pytest

from patience import PATIENCE_S
from scripted import Scripted

PROJECT = Path(__file__).resolve().parents[3]


def find_server() -> Path:
    """``MONOLOCK_BIN``, or the debug build of the repository, made where it is missing."""
    if "MONOLOCK_BIN" in os.environ:
        return Path(os.environ["MONOLOCK_BIN"])
    built = PROJECT / "target" / "debug" / "monolock"
    if not built.exists():
        subprocess.run(["cargo", "build", "--quiet", "--package", "monolock-bin"], cwd=PROJECT, check=True)
    return built


class Server:
    """A server process on a free port, or on the one that is given."""

    def __init__(self, listen: str = "127.0.0.1:0") -> None:
        self.process = subprocess.Popen(
            [str(find_server()), "--listen", listen, "--log-format", "json"], stderr=subprocess.PIPE, text=True
        )
        assert self.process.stderr is not None
        for line in self.process.stderr:
            message = json.loads(line)
            if message["message"] == "listening":
                self.address: str = message["address"]
                break
        else:
            raise RuntimeError("the server did not start")
        self._drain = threading.Thread(target=self.process.stderr.read, daemon=True)
        self._drain.start()

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(PATIENCE_S)
        self._drain.join(PATIENCE_S)
        assert self.process.stderr is not None
        self.process.stderr.close()


@pytest.fixture(scope="session")
def server() -> Iterator[Server]:
    server = Server()
    yield server
    server.stop()


@pytest.fixture
def scripted() -> Iterator[Scripted]:
    scripted = Scripted()
    yield scripted
    scripted.close()
