"""What lets a test take all the time that a busy machine needs: clients that wait, and a clock that a test steps."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, Sequence, Union

from monolock import AsyncClient, Client

#: How long anything is waited for that comes at once. Only a failing test takes so long.
PATIENCE_S = 60.0
PATIENCE = timedelta(seconds=PATIENCE_S)


def patient_client(addresses: Union[str, Sequence[str]], **settings: Any) -> Client:
    return Client(addresses, connect_timeout=PATIENCE, **settings)


def patient_async_client(addresses: Union[str, Sequence[str]], **settings: Any) -> AsyncClient:
    return AsyncClient(addresses, connect_timeout=PATIENCE, **settings)


class Clock:
    """Stands still until it is stepped. A client's timers go on in real time and find out then what is due."""

    def __init__(self) -> None:
        self._now_ns = 0

    def __call__(self) -> int:
        return self._now_ns

    def step(self, duration: timedelta) -> None:
        self._now_ns += duration // timedelta(microseconds=1) * 1000
