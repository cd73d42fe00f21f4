"""The process of a `BrokerProcess`: `millrace serve` on a machine whose faults its stdin commands.

    stdin    a JSON object in each line: `{"cut": [[1, 2]]}`, `{"slow": [[1, 2]], "delay_s": 0.1}`,
             `{"heal": []}`, `{"skew_ms": 1000}`, `{"is_disk_full": true}`
    stdout   `listening on HOST:PORT`, as `millrace serve`, and `done` behind each command

Directions are pairs of broker ids. Each of the two processes of a link holds the connections that
it has made, so both get the commands of the link.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
from pathlib import Path
from typing import Any

from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Environment
from millrace_server.machine import LoopSpawn, SystemClock, net_of
from millrace_server.serve import serve
from millrace_server.testing.cluster import SkewedClock
from millrace_server.testing.links import Links
from millrace_server.testing.process_end import EndableDisk

COMMAND_BYTES_MAX = 64 << 10


class FaultyMachine:
    """This machine, with a clock that is wrong, a disk that is full, and links that are cut."""

    def __init__(self) -> None:
        self._skew_ms = 0
        self._is_disk_full = False
        self._links = Links({})
        self._unread = b""

    def __call__(self, config: BrokerConfig, spawn: LoopSpawn) -> Environment:
        """The environment of the broker, on its loop, which carries out commands from now on."""
        self._links = Links(config.quorum_members)
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)
        return Environment(
            clock=SkewedClock(SystemClock(), lambda: self._skew_ms),
            disk=EndableDisk(Path(config.data), lambda: self._is_disk_full),
            net=self._links.net(config.node_id, net_of(config)),
            rng=random.Random(),
            spawn=spawn,
        )

    def _read(self) -> None:
        data = os.read(sys.stdin.fileno(), COMMAND_BYTES_MAX)
        if not data:
            asyncio.get_running_loop().remove_reader(sys.stdin.fileno())
            return
        *lines, self._unread = (self._unread + data).split(b"\n")
        for line in lines:
            self._carry_out(json.loads(line))
            print("done", flush=True)

    def _carry_out(self, command: dict[str, Any]) -> None:
        if "cut" in command:
            self._links.cut((one, other) for one, other in command["cut"])
        elif "slow" in command:
            directions = [(one, other) for one, other in command["slow"]]
            self._links.slow(directions, command["delay_s"])
        elif "heal" in command:
            self._links.heal()
        elif "skew_ms" in command:
            self._skew_ms = command["skew_ms"]
        else:
            self._is_disk_full = command["is_disk_full"]


if __name__ == "__main__":
    sys.exit(
        serve(config_file=None, environment=os.environ, flags={}, make_machine=FaultyMachine())
    )
