"""A computer with a disk, on which one process runs at a time, and what goes wrong with the disk.

Owns the faults that are waiting to happen. Knows nothing of what runs on it.
"""

from __future__ import annotations

import errno
from collections.abc import Callable

from millrace_server.environment.seams import Environment
from millrace_simulation.disk import FaultyDisk
from millrace_simulation.loop import Process
from millrace_simulation.world import SimSpawn, World

_FIRST_LOG = "/00000000000000000000.log"
_ENTRY_BYTES = 4096
"""What a name takes of the room that is left."""
_GROWING = frozenset({"write", "preallocate"})
_ROOM_OPERATIONS = _GROWING | {"create", "make directory"}


class Machine:
    """One computer, with an address, a clock and a disk of its own.

    `room_bytes` is what a disk that is nearly full has left; None: enough.
    """

    def __init__(self, world: World, name: str, host: str) -> None:
        self.name = name
        self.host = host
        self.clock = world.clock(name)
        self.room_bytes: int | None = None
        self.next_fails: str | None = None
        """The operation ("write", "sync", "read") of which the next one fails with EIO."""
        self.disk_failed = False
        """Since the process was started."""
        self.process: Process | None = None
        self._world = world
        self._rng = world.rng.fork(name)
        self._starts = 0
        world.network.add_host(host, name)
        self._use(FaultyDisk())

    def boot(self) -> tuple[Process, Environment]:
        """Starts a process, with the doors it gets."""
        world = self._world
        self._starts += 1
        self.disk_failed = False
        self.process = world.process(self.name, f"{self.name}.{self._starts}")
        world.network.machine_is_up(self.name)
        rng = self._rng.fork(str(self._starts))
        spawn = SimSpawn(world, rng.fork("spawn"))
        return self.process, Environment(
            self.clock, self.disk, world.network, rng.fork("broker"), spawn
        )

    def kill(self) -> None:
        """Ends the process; what it wrote stays in the page cache."""
        self._end(machine_too=False)
        self._use(self.disk.after_kill())

    def cut_power(self) -> None:
        """Ends the process, and what was not synced is lost, or some of it."""
        if self.disk.has_unsynced:
            self._world.trace.sometimes("a power cut met unsynced data")
        self._end(machine_too=True)
        self.clock.boot()
        self._use(self.disk.after_power_cut(self._rng))

    def cut_power_at(self, operations: int, then: Callable[[], None]) -> None:
        """Cuts the power in the midst of a disk operation that is so many away."""
        self.disk.crash_at = self.disk.operations + operations
        self.disk.on_crash = then

    def repair(self) -> None:
        """The disk has room, and nothing is waiting to fail."""
        self.room_bytes = self.next_fails = self.disk.crash_at = None

    def _end(self, *, machine_too: bool) -> None:
        self.disk.is_dead = True
        process, self.process = self.process, None
        if process is not None:
            process.end()
            self._world.network.process_died(process, machine_too=machine_too)

    def _use(self, disk: FaultyDisk) -> None:
        self.disk = disk
        disk.judge = self._judge
        disk.judge_read = self._judge_read
        disk.part_bytes = self._part_bytes

    def _judge(self, operation: str, path: str) -> int | None:
        failure = self._failure_of(operation)
        if failure is None and operation == "create" and _is_later_segment(path):
            self._world.trace.sometimes("a segment was rolled")
        self._world.trace.note(f"{self.name} disk {operation} {path} {failure or ''}")
        return failure

    def _failure_of(self, operation: str) -> int | None:
        if operation == self.next_fails:
            self._world.trace.sometimes(f"a {operation} failed")
            self.next_fails, self.disk_failed = None, True
            return errno.EIO
        if self.room_bytes is None or operation not in _ROOM_OPERATIONS:
            return None
        grows = operation in _GROWING
        size_bytes = self.disk.growth_bytes if grows else _ENTRY_BYTES
        if size_bytes > self.room_bytes:
            self._world.trace.sometimes("a full disk refused something")
            return errno.ENOSPC
        self.room_bytes -= size_bytes
        return None

    def _judge_read(self, path: str) -> int | None:
        if self.next_fails != "read":
            return None
        failure = self._failure_of("read")
        self._world.trace.note(f"{self.name} disk read {path} {failure}")
        return failure

    def _part_bytes(self, size_bytes: int) -> int:
        """What a write that fails leaves, from nothing to all that there is room for."""
        room_bytes = size_bytes if self.room_bytes is None else self.room_bytes
        return self._rng.randint(0, min(size_bytes, room_bytes))


def _is_later_segment(path: str) -> bool:
    return path.endswith(".log") and not path.endswith(_FIRST_LOG)
