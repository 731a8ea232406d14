"""What lets a test take all the time that a busy machine needs: clients that wait."""

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
