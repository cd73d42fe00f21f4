"""Snapshots of the metadata: files beside the log that say all that it says before an offset.

Owns their names, how one is written atomically and which one is loaded. Their content is
`metadata.snapshot`. The two newest are kept: one that the disk has damaged is passed over for the
one before it, and the log is read from there on.

    __cluster_metadata-0/00000000000000004711.checkpoint    the records before offset 4711

Source: KIP-630.
"""

from __future__ import annotations

import asyncio

from millrace_server.controller.metadata_log import MetadataLog
from millrace_server.environment.seams import Disk, Environment
from millrace_server.logs import get_logger
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.snapshot import TornSnapshot, decode_snapshot, encode_snapshot

log = get_logger("millrace.snapshots")
SNAPSHOT_SUFFIX = ".checkpoint"
SNAPSHOTS_KEPT = 2
_PART_SUFFIX = ".checkpoint.part"
_DIGITS = 20


def load_image(disk: Disk, metadata_log: MetadataLog) -> ClusterImage:
    """The image of the newest snapshot that is whole, and of the log behind it. Blocking.

    Raises `UnreadableMetadata`, `CorruptLog` and `OSError`.
    """
    image = ClusterImage()
    for end_offset in reversed(find_snapshots(disk, metadata_log.directory)):
        try:
            image = _read(disk, _path(metadata_log.directory, end_offset), end_offset)
        except TornSnapshot as error:
            log.warning("snapshot passed over", end_offset=end_offset, reason=str(error))
            continue
        break
    for end_offset, records in metadata_log.read(image.end_offset):
        delta = Delta(image)
        for record in records:
            delta.replay(record)
        image = delta.image(end_offset)
    return image


def find_snapshots(disk: Disk, directory: str) -> list[int]:
    """The end offsets of the snapshots in a directory, ascending."""
    stems = (
        name.removesuffix(SNAPSHOT_SUFFIX)
        for name in disk.list_directory(directory)
        if name.endswith(SNAPSHOT_SUFFIX)
    )
    return sorted(int(s) for s in stems if len(s) == _DIGITS and s.isascii() and s.isdigit())


def write_snapshot(disk: Disk, directory: str, image: ClusterImage, *, now_ms: int) -> None:
    """Makes a snapshot durable, then removes those that are too old. Blocking; raises `OSError`."""
    path = _path(directory, image.end_offset)
    for name in disk.list_directory(directory):
        if name.endswith(_PART_SUFFIX):
            disk.remove(f"{directory}/{name}")
    part = path.removesuffix(SNAPSHOT_SUFFIX) + _PART_SUFFIX
    file = disk.open(part, create=True, write=True)
    try:
        file.pwrite(encode_snapshot(image, now_ms=now_ms), 0)
        file.sync()
    finally:
        file.release()
    disk.rename(part, path)
    disk.sync_directory(directory)
    for end_offset in find_snapshots(disk, directory)[:-SNAPSHOTS_KEPT]:
        disk.remove(_path(directory, end_offset))


def _read(disk: Disk, path: str, end_offset: int) -> ClusterImage:
    file = disk.open(path)
    try:
        data = file.pread(file.size(), 0)
    finally:
        file.release()
    return decode_snapshot(data, end_offset=end_offset)


def _path(directory: str, end_offset: int) -> str:
    return f"{directory}/{end_offset:0{_DIGITS}}{SNAPSHOT_SUFFIX}"


class SnapshotWriter:
    """Writes a snapshot in the background when the log has grown by `bytes_between`."""

    def __init__(self, env: Environment, directory: str, *, bytes_between: int) -> None:
        self._env = env
        self._directory = directory
        self._bytes_between = bytes_between
        self._size_bytes = 0
        self._writing: asyncio.Task[None] | None = None

    def note_loaded(self, size_bytes: int) -> None:
        """Takes the size of the log at start; a snapshot is due when it has grown."""
        self._size_bytes = size_bytes

    def note_commit(self, image: ClusterImage, size_bytes: int) -> None:
        """Takes the newest image and the size of the log behind it."""
        if size_bytes - self._size_bytes < self._bytes_between:
            return
        if self._writing is None or self._writing.done():
            self._size_bytes = size_bytes
            self._writing = self._env.spawn.task(self._write(image), name="metadata snapshot")

    async def close(self) -> None:
        """Returns when no snapshot is being written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self, image: ClusterImage) -> None:
        env = self._env
        try:
            await env.spawn.blocking(self._write_now, image, env.clock.wall_ms())
        except OSError as error:
            # The log is whole without it; the next one is due after as many bytes again.
            log.warning("snapshot not written", end_offset=image.end_offset, error=str(error))
        else:
            log.info("snapshot written", end_offset=image.end_offset)

    def _write_now(self, image: ClusterImage, now_ms: int) -> None:
        write_snapshot(self._env.disk, self._directory, image, now_ms=now_ms)
