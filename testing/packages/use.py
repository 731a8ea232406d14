"""Uses the installed package as somebody does who has nothing else: a lock is held, and taken by nobody else meanwhile."""

import sys
from datetime import timedelta

import monolock

minute = timedelta(minutes=1)
client = monolock.Client(sys.argv[1], connect_timeout=minute)
with client.lock("nightly-import", lease=minute) as lock:
    assert lock.token > 0
    try:
        client.try_acquire("nightly-import", lease=minute)
    except monolock.ContendedError:
        print(f"held with token {lock.token}, from {monolock.__file__}")
    else:
        sys.exit("two hold one lock")
