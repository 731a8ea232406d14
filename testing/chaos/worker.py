"""One Python client of the server, as the Rust program chaos-worker is one: claims a lock again and again, says what it believes as lines of a
history on standard output, and hears ``keep CLAIM``, ``go`` and ``finish`` on standard input. Public API alone; see src/history.rs for what a
stamp means.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import sys
import threading
import time
from datetime import timedelta
from pathlib import Path
from typing import Any, Union

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "clients" / "python" / "src"))

import monolock  # noqa: E402

LOOK_S = 0.004
SAY_NS = 25_000_000

Lock = Union[monolock.Lock, monolock.AsyncLock]


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def say(t: int, event: str, **fields: Any) -> None:
    sys.stdout.write(json.dumps({"t": t, "event": event, **fields}) + "\n")
    sys.stdout.flush()


class Orders:
    """What the harness wants."""

    def __init__(self) -> None:
        self.keep = 0
        self.finish = False
        threading.Thread(target=self._hear, daemon=True).start()

    def _hear(self) -> None:
        for line in sys.stdin:
            words = line.split()
            if words[:1] == ["keep"]:
                self.keep = int(words[1])
            elif words == ["go"]:
                self.keep = 0
            else:
                break
        self.finish = True

    def keeps(self, claim: int) -> bool:
        return self.keep == claim and not self.finish


class Hold:
    """A claim from its grant to its end, one look after the other."""

    def __init__(self, worker: str, claim: int, name: str, lock: Lock, orders: Orders) -> None:
        self.fields = {"worker": worker, "claim": claim}
        self.name, self.lock, self.orders = name, lock, orders
        say(now(), "granted", **self.fields, token=lock.token)
        self.until = now() + random.randrange(20, 250) * 1_000_000
        self.said = 0
        self.believed = 0
        self.is_keeping = False

    def look(self) -> bool:
        """Whether to look again."""
        # Stamped before the question: what is held at the answer was held at this instant too.
        asked = now()
        if not self.lock.is_held():
            self._lose()
            return False
        if asked - self.said >= SAY_NS:
            self.said = asked
            say(asked, "believed", **self.fields)
            self.write()
        self.believed = asked
        if self.orders.keeps(self.fields["claim"]):
            if not self.is_keeping:
                self.is_keeping = True
                say(now(), "keeping", **self.fields)
        elif asked >= self.until or self.orders.finish:
            say(asked, "believed", **self.fields)
            say(now(), "releasing", **self.fields)
            return False
        return True

    def write(self) -> None:
        say(now(), "write", **self.fields, lock=self.name, token=self.lock.token)

    def _lose(self) -> None:
        if self.believed > self.said:
            say(self.believed, "believed", **self.fields)
        loss = self.lock.loss
        say(now(), "lost", **self.fields, reason=str(loss.reason) if loss is not None else "none")
        # As work does that was between its last look and its write.
        self.write()


def pause() -> float:
    return random.randrange(5, 60) / 1000


def back_off() -> float:
    return random.randrange(20, 200) / 1000


def blocking(args: argparse.Namespace, orders: Orders) -> None:
    client = monolock.Client(args.server, connect_timeout=timedelta(seconds=2.5))
    claim = 0
    while not orders.finish:
        claim += 1
        lease_ms = random.choice(args.leases_ms)
        say(now(), "ask", worker=args.name, claim=claim, lock=args.lock, lease_ms=lease_ms)
        try:
            lock = client.acquire(args.lock, timedelta(milliseconds=lease_ms))
        except monolock.MonolockError as error:
            say(now(), "failed", worker=args.name, claim=claim, kind=str(error.kind))
            time.sleep(back_off())
            continue
        hold = Hold(args.name, claim, args.lock, lock, orders)
        while hold.look():
            time.sleep(LOOK_S)
        lock.release()
        time.sleep(pause())


async def cooperative(args: argparse.Namespace, orders: Orders) -> None:
    client = monolock.AsyncClient(args.server, connect_timeout=timedelta(seconds=2.5))
    claim = 0
    while not orders.finish:
        claim += 1
        lease_ms = random.choice(args.leases_ms)
        say(now(), "ask", worker=args.name, claim=claim, lock=args.lock, lease_ms=lease_ms)
        try:
            lock = await client.acquire(args.lock, timedelta(milliseconds=lease_ms))
        except monolock.MonolockError as error:
            say(now(), "failed", worker=args.name, claim=claim, kind=str(error.kind))
            await asyncio.sleep(back_off())
            continue
        hold = Hold(args.name, claim, args.lock, lock, orders)
        while hold.look():
            await asyncio.sleep(LOOK_S)
        lock.release()
        await asyncio.sleep(pause())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--name", required=True)
    parser.add_argument("--server", required=True)
    parser.add_argument("--lock", required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--leases-ms", type=lambda text: [int(lease) for lease in text.split(",")], required=True)
    parser.add_argument("--asyncio", action="store_true")
    args = parser.parse_args()
    random.seed(args.seed)
    orders = Orders()
    if args.asyncio:
        asyncio.run(cooperative(args, orders))
    else:
        blocking(args, orders)


if __name__ == "__main__":
    main()
