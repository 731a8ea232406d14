"""The conformance suite's hand on this client: JSON objects, one a line, on stdin and stdout.

``driver.py`` drives the blocking client, ``driver.py --async`` the asyncio one. Both speak through the public API alone.
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import threading
import time
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any, Dict, Optional, Type, TypeVar

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "src"))

import monolock  # noqa: E402

Op = Dict[str, Any]
C = TypeVar("C", monolock.Client, monolock.AsyncClient)

_output = threading.Lock()


def emit(event: str, **fields: Any) -> None:
    with _output:
        print(json.dumps({"event": event, **fields}), flush=True)


def emit_error(id: int, error: monolock.MonolockError) -> None:
    print(f"{id}: {error}", file=sys.stderr, flush=True)
    emit("error", id=id, kind=str(error.kind), code=error.code)


def emit_lost(id: int, loss: monolock.Loss) -> None:
    print(f"{id}: {loss}", file=sys.stderr, flush=True)
    emit("lost", id=id, reason=str(loss.reason), code=loss.code)


class WorkFailed(Exception):
    """What the guarded work raises when it is told to fail."""


def emit_done(id: int, error: Optional[BaseException]) -> None:
    if error is None:
        return emit("done", id=id, outcome="ok")
    print(f"{id}: {error!r}", file=sys.stderr, flush=True)
    known = error if isinstance(error, monolock.MonolockError) else None
    loss = monolock.loss_of(error)
    code = known.code if known is not None else loss.code if loss is not None else None
    emit(
        "done",
        id=id,
        outcome="error",
        kind=None if known is None else str(known.kind),
        work_failed=isinstance(error, WorkFailed),
        lost=None if loss is None else str(loss.reason),
        code=code,
    )


def lease_of(op: Op) -> timedelta:
    """Any number of milliseconds, in the API's natural form. What that form cannot express is invalid."""
    try:
        return timedelta(milliseconds=float(op["lease_ms"]))
    except (OverflowError, ValueError) as error:
        raise monolock.InvalidError(str(error)) from error


def milliseconds(op: Op, field: str) -> Optional[timedelta]:
    value = op.get(field)
    return None if value is None else timedelta(milliseconds=value)


def tls_of(op: Op) -> Optional[ssl.SSLContext]:
    tls = op.get("tls")
    if tls is None:
        return None
    context = ssl.create_default_context(cafile=tls["ca"])
    if tls.get("cert") is not None:
        context.load_cert_chain(tls["cert"], tls["key"])
    return context


def make_client(kind: Type[C], op: Op, shared: Dict[str, C]) -> C:
    key = op.get("client")
    if key is not None and key in shared:
        return shared[key]
    client = kind(
        op["addresses"],
        tls=tls_of(op),
        server_name=(op.get("tls") or {}).get("server_name"),
        connect_timeout=milliseconds(op, "connect_timeout_ms") or timedelta(seconds=5),
        max_hold=milliseconds(op, "max_hold_ms"),
    )
    if key is not None:
        shared[key] = client
    return client


class BlockingDriver:
    def __init__(self) -> None:
        self._clients: Dict[str, monolock.Client] = {}
        self._cancels: Dict[int, monolock.Cancel] = {}
        self._locks: Dict[int, monolock.Lock] = {}
        self._finishes: Dict[int, "threading.Event"] = {}
        self._results: Dict[int, str] = {}

    def run(self) -> None:
        for line in sys.stdin:
            op: Op = json.loads(line)
            if op["op"] == "exit":
                break
            getattr(self, "op_" + op["op"])(op)
        self._end()

    def op_acquire(self, op: Op) -> None:
        self._cancels[op["id"]] = monolock.Cancel()
        threading.Thread(target=self._acquire, args=(op,), daemon=True).start()

    def _acquire(self, op: Op) -> None:
        id: int = op["id"]
        try:
            client = make_client(monolock.Client, op, self._clients)
            lock = self._obtain(client, op)
        except monolock.MonolockError as error:
            return emit_error(id, error)
        self._locks[id] = lock
        emit("acquired", id=id, token=str(lock.token))
        lock.on_lost(lambda loss: emit_lost(id, loss))

    def _obtain(self, client: monolock.Client, op: Op) -> monolock.Lock:
        lease, cancel, wait = lease_of(op), self._cancels[op["id"]], milliseconds(op, "wait_ms")
        if op["mode"] == "try":
            return client.try_acquire(op["name"], lease, cancel=cancel)
        return client.acquire(op["name"], lease, wait=wait, retry=op["mode"] == "retry", cancel=cancel)

    def op_do(self, op: Op) -> None:
        self._cancels[op["id"]] = monolock.Cancel()
        self._finishes[op["id"]] = threading.Event()
        threading.Thread(target=self._do, args=(op,), daemon=True).start()

    def _do(self, op: Op) -> None:
        id: int = op["id"]
        cancel, wait = self._cancels[id], milliseconds(op, "wait_ms")
        try:
            client = make_client(monolock.Client, op, self._clients)
            if op["mode"] == "try":
                with client.try_acquire(op["name"], lease_of(op), cancel=cancel) as lock:
                    self._work(id, lock.held)
            else:
                client.do(op["name"], lease_of(op), partial(self._work, id), wait=wait, retry=op["mode"] == "retry", cancel=cancel)
        except Exception as error:
            return emit_done(id, error)
        emit_done(id, None)

    def _work(self, id: int, held: monolock.Held) -> None:
        emit("started", id=id, token=str(held.token))
        threading.Thread(target=self._watch_stop, args=(id, held), daemon=True).start()
        self._finishes[id].wait()
        if self._results[id] == "fail":
            raise WorkFailed("the work failed")

    def _watch_stop(self, id: int, held: monolock.Held) -> None:
        if held.stop.wait():
            emit("stop_requested", id=id)

    def op_finish(self, op: Op) -> None:
        self._results[op["id"]] = op["result"]
        self._finishes[op["id"]].set()

    def op_release(self, op: Op) -> None:
        if op["id"] in self._locks:
            self._locks[op["id"]].release()
        emit("released", id=op["id"])

    def op_is_held(self, op: Op) -> None:
        lock = self._locks.get(op["id"])
        emit("is_held", id=op["id"], held=lock is not None and lock.is_held())

    def op_cancel(self, op: Op) -> None:
        self._cancels[op["id"]].cancel()

    def op_block(self, op: Op) -> None:
        """There is no event loop to block."""
        emit("unblocked")

    def _end(self) -> None:
        for id, finish in self._finishes.items():
            self._results.setdefault(id, "ok")
            finish.set()
        for cancel in self._cancels.values():
            cancel.cancel()
        # A thread that writes while the interpreter goes would abort it, so they end first; only a look-up may take longer than this.
        until = time.monotonic() + 5
        while threading.active_count() > 1 and time.monotonic() < until:
            for lock in list(self._locks.values()):
                lock.release()
            for thread in threading.enumerate():
                if thread is not threading.current_thread():
                    thread.join(0.05)


class AsyncDriver:
    def __init__(self) -> None:
        self._clients: Dict[str, monolock.AsyncClient] = {}
        self._cancels: Dict[int, monolock.Cancel] = {}
        self._locks: Dict[int, monolock.AsyncLock] = {}
        self._finishes: Dict[int, "asyncio.Future[str]"] = {}
        self._tasks: Dict[int, "asyncio.Task[None]"] = {}
        self._ops: "asyncio.Queue[Optional[Op]]"

    async def run(self) -> None:
        self._ops = asyncio.Queue()
        loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, args=(loop,), daemon=True).start()
        while True:
            op = await self._ops.get()
            if op is None or op["op"] == "exit":
                break
            getattr(self, "op_" + op["op"])(op)
        await self._end()

    def _read(self, loop: asyncio.AbstractEventLoop) -> None:
        for line in sys.stdin:
            loop.call_soon_threadsafe(self._ops.put_nowait, json.loads(line))
        loop.call_soon_threadsafe(self._ops.put_nowait, None)

    def op_acquire(self, op: Op) -> None:
        self._cancels[op["id"]] = monolock.Cancel()
        self._tasks[op["id"]] = asyncio.create_task(self._acquire(op))

    async def _acquire(self, op: Op) -> None:
        id: int = op["id"]
        try:
            client = make_client(monolock.AsyncClient, op, self._clients)
            lock = await self._obtain(client, op)
        except monolock.MonolockError as error:
            return emit_error(id, error)
        self._locks[id] = lock
        emit("acquired", id=id, token=str(lock.token))
        lock.on_lost(lambda loss: emit_lost(id, loss))

    async def _obtain(self, client: monolock.AsyncClient, op: Op) -> monolock.AsyncLock:
        lease, cancel, wait = lease_of(op), self._cancels[op["id"]], milliseconds(op, "wait_ms")
        if op["mode"] == "try":
            return await client.try_acquire(op["name"], lease, cancel=cancel)
        return await client.acquire(op["name"], lease, wait=wait, retry=op["mode"] == "retry", cancel=cancel)

    def op_do(self, op: Op) -> None:
        self._cancels[op["id"]] = monolock.Cancel()
        self._finishes[op["id"]] = asyncio.get_running_loop().create_future()
        self._tasks[op["id"]] = asyncio.create_task(self._do(op))

    async def _do(self, op: Op) -> None:
        id: int = op["id"]
        cancel, wait = self._cancels[id], milliseconds(op, "wait_ms")
        try:
            client = make_client(monolock.AsyncClient, op, self._clients)
            if op["mode"] == "try":
                async with await client.try_acquire(op["name"], lease_of(op), cancel=cancel) as lock:
                    await self._work(id, lock.held)
            else:
                await client.do(op["name"], lease_of(op), partial(self._work, id), wait=wait, retry=op["mode"] == "retry", cancel=cancel)
        except Exception as error:
            return emit_done(id, error)
        emit_done(id, None)

    async def _work(self, id: int, held: monolock.AsyncHeld) -> None:
        emit("started", id=id, token=str(held.token))
        watching = asyncio.create_task(self._watch_stop(id, held))
        try:
            # The suite tells how the work ends, also after a loss has cancelled it: work that needs time to stop.
            result = await self._finished(id)
        finally:
            if held.stop.is_set():
                await asyncio.wait({watching})
            watching.cancel()
        if result == "fail":
            raise WorkFailed("the work failed")

    async def _finished(self, id: int) -> str:
        try:
            return await asyncio.shield(self._finishes[id])
        except asyncio.CancelledError:
            if await asyncio.wait_for(asyncio.shield(self._finishes[id]), 60) == "fail":
                return "fail"
            raise

    async def _watch_stop(self, id: int, held: monolock.AsyncHeld) -> None:
        if await held.stop.wait():
            emit("stop_requested", id=id)

    def op_finish(self, op: Op) -> None:
        if not self._finishes[op["id"]].done():
            self._finishes[op["id"]].set_result(op["result"])

    def op_release(self, op: Op) -> None:
        if op["id"] in self._locks:
            self._locks[op["id"]].release()
        emit("released", id=op["id"])

    def op_is_held(self, op: Op) -> None:
        lock = self._locks.get(op["id"])
        emit("is_held", id=op["id"], held=lock is not None and lock.is_held())

    def op_cancel(self, op: Op) -> None:
        self._cancels[op["id"]].cancel()

    def op_block(self, op: Op) -> None:
        time.sleep(op["ms"] / 1000)
        emit("unblocked")

    async def _end(self) -> None:
        for future in self._finishes.values():
            if not future.done():
                future.set_result("ok")
        for cancel in self._cancels.values():
            cancel.cancel()
        for lock in self._locks.values():
            lock.release()
        if self._tasks:
            await asyncio.wait(set(self._tasks.values()), timeout=1)


def main() -> None:
    emit("ready", client="monolock-python-async" if "--async" in sys.argv[1:] else "monolock-python", version=monolock.__version__)
    if "--async" in sys.argv[1:]:
        asyncio.run(AsyncDriver().run())
    else:
        BlockingDriver().run()


if __name__ == "__main__":
    main()
