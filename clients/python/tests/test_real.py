"""Against the real server: the samples, and the scenarios of a client's first day."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Iterator, List

import pytest

import monolock
from conftest import Server
from monolock._clock import now_ns
from patience import PATIENCE, PATIENCE_S, patient_async_client, patient_client

PACKAGE = Path(__file__).resolve().parents[1]
LEASE = timedelta(minutes=1)
SAMPLES = dict(re.findall(r"<!-- sample: (.*?) -->\n```python\n(.*?)```", (PACKAGE / "README.md").read_text(), re.S))


def run(code: str, *args: str) -> "subprocess.CompletedProcess[str]":
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "PYTHONWARNINGS": "error"}
    return subprocess.run(
        [sys.executable, "-c", code, *args], env=environment, capture_output=True, text=True, timeout=PATIENCE_S
    )


def patient(sample: str) -> str:
    """The sample with a lease, a wait limit and a connect timeout that nobody reaches."""
    sample = re.sub(r"timedelta\(\w+=\d+\)", "timedelta(minutes=1)", sample)
    return re.sub(r"Client\((.+?)\)", r"Client(\1, connect_timeout=timedelta(minutes=1))", sample)


@pytest.fixture(scope="module", autouse=True)
def long_hold(server: Server) -> Iterator["tuple[monolock.Lock, float]"]:
    """A hold beside the other tests, since a lease that outlasts a stall takes its time; and when it has outlasted its lease."""
    with patient_client(server.address).lock("long", timedelta(seconds=10)) as lock:
        yield lock, time.monotonic() + 11


@pytest.mark.parametrize(
    ("sample", "printed"),
    [
        ("hold", r"imported with token \d+\n"),
        ("try", r"reporting with token \d+\n"),
        ("wait limit", "deploying\n"),
        ("fenced write", "written\n"),
    ],
)
def test_the_samples_of_the_readme(server: Server, sample: str, printed: str) -> None:
    ran = run(f"ADDRESS = {server.address!r}\n{patient(SAMPLES[sample])}")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.fullmatch(printed, ran.stdout)


def test_the_program_of_the_quick_start_hands_over_when_it_is_killed(server: Server) -> None:
    page = (PACKAGE.parents[1] / "docs" / "quick-start.md").read_text()
    (program,) = re.findall(r"```python\n(.*?)```", page, re.S)
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src"), "PYTHONWARNINGS": "error"}
    command = [sys.executable, "-c", patient(program).replace("127.0.0.1:7070", server.address)]

    def start() -> "subprocess.Popen[str]":
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)

    def token(process: "subprocess.Popen[str]") -> int:
        assert process.stdout is not None
        said = re.fullmatch(r"working under token (\d+)\n", process.stdout.readline())
        assert said is not None
        return int(said[1])

    with start() as first:
        before = token(first)
        with start() as second:
            first.kill()
            assert token(second) > before
            second.kill()


def test_the_fencing_sample_refuses_a_stale_holder(server: Server) -> None:
    ran = run(patient((PACKAGE / "examples" / "fencing.py").read_text()), server.address)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert re.search(r"refused: token \d+ is older than the row's, the balance is still 200\n$", ran.stdout)


def test_two_clients_and_a_push(server: Server) -> None:
    first = patient_client(server.address).acquire("push", LEASE)

    async def second() -> int:
        client = patient_async_client(server.address)
        with pytest.raises(monolock.ContendedError):
            await client.try_acquire("push", LEASE)
        acquiring = asyncio.create_task(client.acquire("push", LEASE))
        # In the queue as soon as another claim finds it there; here the release may come before, which is as good.
        await asyncio.sleep(0)
        first.release()
        async with await acquiring as lock:
            return lock.token

    assert asyncio.run(second()) > first.token


def test_a_server_that_hangs_under_a_holder() -> None:
    server, lease, ahead_ns = Server(), timedelta(seconds=8), 0
    try:
        lock = patient_client(server.address, _clock=lambda: now_ns() + ahead_ns).acquire("dark", lease)
        os.kill(server.process.pid, signal.SIGSTOP)
        # Half the lease passes at once. The heartbeat that is due after a quarter still goes out in time.
        ahead_ns = 4 * 10**9
        assert lock.lost.wait(PATIENCE)
        assert lock.loss == monolock.Loss(monolock.LossReason.TIMEOUT)
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
        server.stop()


def test_a_server_that_restarts_under_a_waiter() -> None:
    server = Server()
    client = patient_client(server.address)
    holder = client.acquire("restart", LEASE)
    tokens: List[int] = []

    def wait() -> None:
        with client.lock("restart", LEASE, retry=True, wait=PATIENCE) as lock:
            tokens.append(lock.token)

    waiting = threading.Thread(target=wait)
    waiting.start()
    while client.claims("restart") < 2:
        time.sleep(0.005)
    server.stop()
    assert holder.lost.wait(PATIENCE)
    assert holder.loss is not None and (holder.loss.reason, holder.loss.code) == ("server_error", 0x01)
    # The first token of a server is its start's second: a restart within the second of the last grant may repeat one.
    while int(time.time()) <= holder.token >> 20:
        time.sleep(0.01)
    again = Server(listen=server.address)
    waiting.join(PATIENCE_S)
    again.stop()
    assert len(tokens) == 1 and tokens[0] > holder.token


def test_a_300_byte_name_is_refused_before_dialling(server: Server) -> None:
    with pytest.raises(monolock.InvalidError):
        monolock.Client(server.address).acquire("x" * 300, LEASE)


FORK = """
import os, sys
from datetime import timedelta
import monolock

lease = timedelta(minutes=1)
client = monolock.Client(sys.argv[1], connect_timeout=lease)
lock = client.acquire("fork", lease)
child = os.fork()
if child == 0:
    for use in (lock.is_held, lock.release, lambda: lock.loss, lambda: lock.lost.is_set(), lambda: lock.on_lost(print)):
        try:
            use()
        except monolock.InvalidError:
            continue
        os._exit(1)
    # What is the parent's is the parent's; the child's own claims are its own.
    if client.claims("fork") != 0:
        os._exit(2)
    try:
        client.try_acquire("fork", lease)
        os._exit(3)
    except monolock.ContendedError:
        pass
    with client.lock("other", lease):
        pass
    del lock
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
assert not lock.lost.wait(timedelta(seconds=1)) and lock.is_held()
# A second child that lives on does not keep the parent's connection open.
child = os.fork()
if child == 0:
    import time
    time.sleep(120)
    os._exit(0)
print(child, flush=True)
os.kill(os.getpid(), 9)
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_fork_has_no_part_in_the_parents_claims(server: Server) -> None:
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE / "src")}
    parent: Any = subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", FORK, server.address], env=environment, stdout=subprocess.PIPE, text=True
    )
    child = int(parent.stdout.readline())
    parent.wait(PATIENCE_S)
    parent.stdout.close()
    try:
        # Its death was its release: the lease lasts longer than this wait, and so does the second child.
        patient_client(server.address).acquire("fork", LEASE, wait=timedelta(seconds=20)).release()
    finally:
        os.kill(child, signal.SIGKILL)


EXIT = """
import sys
from datetime import timedelta
import monolock
lease = timedelta(minutes=1)
lock = monolock.Client(sys.argv[1], connect_timeout=lease).acquire("exit", lease)
print(lock.token)
"""


def test_the_interpreter_exits_by_itself(server: Server) -> None:
    for _ in range(2):
        ran = run(EXIT + "lock.__class__.__del__ = lambda self: None", server.address)
        assert (ran.returncode, ran.stderr) == (0, "")


def test_a_hold_over_many_heartbeats(long_hold: "tuple[monolock.Lock, float]") -> None:
    lock, until_s = long_hold
    assert not lock.lost.wait(timedelta(seconds=max(0, until_s - time.monotonic())))
    assert lock.is_held()
