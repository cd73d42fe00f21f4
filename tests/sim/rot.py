"""Damage to what was durable: bits that flip, and sectors that went to the wrong place.

Owns what is damaged and what may follow from it. Of a log that is what its recovery point vouches
for: a sync may reach further than the broker knows, and damage there looks like a torn tail. One
fault for each partition: two could hide each other. Whatever is damaged, a wrong value or a log
that is shorter than promised must not go without a word; errors and partitions that are offline are
words enough.
"""

from __future__ import annotations

from millrace.errors import MillraceError
from millrace_server.log.recovery_point import RECOVERY_POINT_NAME, RecoveryPoint
from millrace_server.quorum.metadata_log import METADATA_TOPIC
from millrace_simulation.disk import SECTOR_BYTES, FaultyDisk
from millrace_simulation.trace import Trace
from millrace_simulation.world import Rng
from tests.sim.ledger import partition_name

_METADATA_DIRECTORY = f"{METADATA_TOPIC}-0"


class Rot:
    """The damage done in one run."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._directories: dict[tuple[str, str], str] = {}
        """Machine and directory of a partition to the file that was damaged in it."""

    @property
    def has_begun(self) -> bool:
        """Whether anything is damaged."""
        return bool(self._directories)

    def is_metadata_damaged(self, machine: str) -> bool:
        """Whether what a broker knows of itself is damaged: then it may refuse everything."""
        return (machine, _METADATA_DIRECTORY) in self._directories

    def is_damaged(self, machine: str, topic: str, number: int) -> bool:
        """Whether a partition may be offline or refuse to be read."""
        directory = partition_name((topic, number))
        return self.is_metadata_damaged(machine) or (machine, directory) in self._directories

    def note_corruption(self, name: str, error: MillraceError) -> None:
        """A reader was told that what it got is damaged."""
        if self.has_begun:
            self._trace.sometimes("damage was found by a reader")
        else:
            self._trace.violation(f"{name} was given damaged bytes: {error!r}")

    def damage(self, machine: str, disk: FaultyDisk, rng: Rng) -> None:
        """Damages one file of a machine, if there is one in a partition that is whole."""
        sound = [
            path
            for path in disk.durable_files()
            if path.count("/") == 1
            and (machine, path.split("/")[0]) not in self._directories
            and promised(disk, path).strip(b"\0")
        ]
        logs = [path for path in sound if path.endswith(".log")]
        if rng.random() < 0.9:
            logs = [path for path in logs if not path.startswith(_METADATA_DIRECTORY)]
        files = logs if rng.random() < 0.7 else sound
        if not files:
            return
        path = rng.choice(files)
        position = self._position(disk, path, rng)
        if rng.random() < 0.6:
            self._note(machine, path, f"bit flipped at {position}")
            disk.flip_bit(path, position, rng.randrange(8))
            self._trace.sometimes("a bit was flipped")
        else:
            target, place = _misdirect(disk, path, position, sound, rng)
            self._note(machine, path, f"sector at {position} not written")
            self._note(machine, target, f"sector at {place} overwritten")
            self._trace.sometimes("a sector was misdirected")

    def _position(self, disk: FaultyDisk, path: str, rng: Rng) -> int:
        """A byte of what was ever written; every other time one near the end."""
        end = len(promised(disk, path).rstrip(b"\0"))
        if rng.random() < 0.5:
            return rng.randint(max(0, end - 300), end - 1)
        return rng.randrange(end)

    def _note(self, machine: str, path: str, what: str) -> None:
        self._directories.setdefault((machine, path.split("/")[0]), path)
        self._trace.note(f"rot: {machine} {path} {what}")


def _misdirect(
    disk: FaultyDisk, path: str, position: int, sound: list[str], rng: Rng
) -> tuple[str, int]:
    """The sector of a position was not written where it belongs, and some other one was instead.

    Returns the other one's file and position.
    """
    position = position // SECTOR_BYTES * SECTOR_BYTES
    sector = disk.durable_bytes(path)[position : position + SECTOR_BYTES]
    directory = path.split("/")[0]
    # In the same partition only within the same file: the rest of it must be good.
    targets = [one for one in sound if one == path or one.split("/")[0] != directory]
    target = rng.choice(targets)
    sectors = -(-len(promised(disk, target)) // SECTOR_BYTES)
    place = rng.randrange(sectors) * SECTOR_BYTES
    if target != path and place == position:
        # Batches of another log at the offsets that belong there are not damage that a broker can
        # know: a batch does not name its partition.
        target = path
    disk.damage(target, place, sector)
    disk.damage(path, position, bytes(len(sector)))
    return target, place


def promised(disk: FaultyDisk, path: str) -> bytes:
    """What is on the disk of a file, as far as the broker knows that it is."""
    data = disk.durable_bytes(path)
    directory, _, name = path.partition("/")
    if not name.endswith(".log"):
        return data
    mark_path = f"{directory}/{RECOVERY_POINT_NAME}"
    mark = RecoveryPoint.decode(disk.file_bytes(mark_path)) if disk.exists(mark_path) else None
    base_offset = int(name.partition(".")[0])
    if mark is None or base_offset > mark.base_offset:
        return b""
    return data if base_offset < mark.base_offset else data[: mark.position]
