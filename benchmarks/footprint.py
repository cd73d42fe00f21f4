"""What a broker costs before it does anything: time to start, memory, idle CPU."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack

from benchmarks.broker import running_broker
from benchmarks.processes import (
    ProcessFailed,
    last_words,
    process_cpu_s,
    python_module,
    resident_bytes,
)
from benchmarks.results import Fact, Row
from benchmarks.samples import Spread
from benchmarks.session import MIB, Session

GROUP = "footprint"
FIRST_RESPONSE_S = 0.5
RESIDENT_MIB = 80.0
IDLE_CPU_PERCENT = 0.5
EMBEDDED_MS = 50.0
IDLE_CONNECTIONS = 10
_BARE_START = "import asyncio, uvloop"


def run(session: Session) -> Iterator[Row]:
    """Facts against their limits, beside an interpreter that only imports its event loop."""
    session.say("footprint: start, memory, idle CPU")
    starts = session.scale.starts
    ready: list[float] = []
    resident: list[float] = []
    bare: list[float] = []
    with running_broker(session, "footprint-compiles"):
        pass  # The first start of a checkout compiles its modules.
    for index in range(starts):
        bare.append(_bare_start_s())
        with running_broker(session, f"footprint-{index}") as broker:
            ready.append(broker.ready_s)
            resident.append(resident_bytes(broker.pid) / MIB)
    yield Fact(
        GROUP,
        "First response after the start of the process",
        "s",
        Spread.of(ready),
        FIRST_RESPONSE_S,
        f"an interpreter that imports asyncio and uvloop: {Spread.of(bare).median:.3f} s",
    )
    yield Fact(GROUP, "Resident memory, no topics", "MiB", Spread.of(resident), RESIDENT_MIB)
    yield _idle_cpu(session)
    session.say("footprint: embedded broker")
    yield Fact(
        GROUP,
        "Embedded broker, from nothing to listening",
        "ms",
        Spread.of(_embedded_ms(session)),
        EMBEDDED_MS,
        "in a process that has imported it; the first of them included",
    )


def _bare_start_s() -> float:
    started = time.perf_counter()
    subprocess.run([sys.executable, "-c", _BARE_START], check=True)
    return time.perf_counter() - started


def _idle_cpu(session: Session) -> Fact:
    """CPU time of a broker with open connections and an unused topic."""
    seconds = session.scale.idle_s
    with running_broker(session, "footprint-idle") as broker, ExitStack() as stack:
        for _ in range(IDLE_CONNECTIONS):
            connection = stack.enter_context(broker.connect())
        connection.create_topic("idle", partitions=4)
        time.sleep(min(1.0, seconds))
        before = process_cpu_s(broker.pid)
        time.sleep(seconds)
        percent = (process_cpu_s(broker.pid) - before) / seconds * 100
    return Fact(
        GROUP,
        "Idle CPU",
        "% of a CPU",
        Spread.of([percent]),
        IDLE_CPU_PERCENT,
        f"{IDLE_CONNECTIONS} connections, one topic, over {seconds:g} s",
    )


def _embedded_ms(session: Session) -> list[float]:
    with session.log.open("a") as errors:
        done = subprocess.run(
            python_module("benchmarks.embedded", str(max(session.scale.starts, 2))),
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env={**os.environ, **session.checkout.environment},
        )
    if done.returncode:
        raise ProcessFailed(f"the embedded broker failed: {last_words(session.log)}")
    milliseconds: list[float] = json.loads(done.stdout.splitlines()[-1])
    return milliseconds
