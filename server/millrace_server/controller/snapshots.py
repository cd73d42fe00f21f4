"""Snapshots of the metadata: files beside the log that say all that it says before an offset.

Owns their names, how one is written atomically, which one is loaded, and what of the log they
replace. Their content is `metadata.snapshot`. The two newest are kept, and the log from the older
one on: a snapshot that the disk has damaged is passed over for the one before it, and the log is
read from there.

    __cluster_metadata-0/00000000000000004711.checkpoint    the records before offset 4711

    write the snapshot under another name, sync
    rename it, sync the directory             from here on it is durable
    remove the snapshots before the older one
    begin the log at the older one            the log's next flush writes that down,
                                              then deletes the segments before it

A crash between any two of these leaves more than a start needs.

Source: KIP-630.
"""

from __future__ import annotations

import asyncio

from millrace_server.api_error import ApiError
from millrace_server.controller.metadata_log import MetadataLog
from millrace_server.environment.seams import Disk, Environment
from millrace_server.log.checkpoint_file import TEMPORARY_SUFFIX, read_file, replace_file
from millrace_server.logs import get_logger
from millrace_server.metadata.delta import Delta
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.snapshot import TornSnapshot, decode_snapshot, encode_snapshot

log = get_logger("millrace.snapshots")
SNAPSHOT_SUFFIX = ".checkpoint"
SNAPSHOTS_KEPT = 2
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


def write_snapshot(disk: Disk, directory: str, image: ClusterImage, *, now_ms: int) -> list[int]:
    """Makes a snapshot durable, then removes those that are too old. Blocking; raises `OSError`.

    Returns the end offsets of those that are kept, ascending.
    """
    path = _path(directory, image.end_offset)
    for name in disk.list_directory(directory):
        if name.endswith(SNAPSHOT_SUFFIX + TEMPORARY_SUFFIX):
            disk.remove(f"{directory}/{name}")
    replace_file(disk, path, encode_snapshot(image, now_ms=now_ms))
    found = find_snapshots(disk, directory)
    for end_offset in found[:-SNAPSHOTS_KEPT]:
        disk.remove(_path(directory, end_offset))
    return found[-SNAPSHOTS_KEPT:]


def _read(disk: Disk, path: str, end_offset: int) -> ClusterImage:
    return decode_snapshot(read_file(disk, path) or b"", end_offset=end_offset)


def _path(directory: str, end_offset: int) -> str:
    return f"{directory}/{end_offset:0{_DIGITS}}{SNAPSHOT_SUFFIX}"


class SnapshotWriter:
    """Writes a snapshot in the background when the log has grown by `bytes_between`.

    Then deletes what of the log the kept snapshots replace.
    """

    def __init__(self, env: Environment, metadata_log: MetadataLog, *, bytes_between: int) -> None:
        self._env = env
        self._log = metadata_log
        self._bytes_between = bytes_between
        self._snapshot_bytes = 0
        """What had been appended to the log when the last snapshot was begun."""
        self._writing: asyncio.Task[None] | None = None

    def note_commit(self, image: ClusterImage) -> None:
        """Takes the newest image; everything before its end is committed."""
        appended_bytes = self._log.appended_bytes
        if appended_bytes - self._snapshot_bytes < self._bytes_between:
            return
        if self._writing is None or self._writing.done():
            self._snapshot_bytes = appended_bytes
            self._writing = self._env.spawn.task(self._write(image), name="metadata snapshot")

    async def close(self) -> None:
        """Returns when no snapshot is being written."""
        if self._writing is not None:
            await asyncio.wait([self._writing])

    async def _write(self, image: ClusterImage) -> None:
        env = self._env
        try:
            kept = await env.spawn.blocking(self._write_now, image, env.clock.wall_ms())
            if len(kept) == SNAPSHOTS_KEPT:
                self._log.delete_before(kept[0])
        except (OSError, ApiError) as error:
            # The log is whole without it; the next one is due after as many bytes again.
            log.warning("snapshot not written", end_offset=image.end_offset, error=str(error))
        else:
            log.info("snapshot written", end_offset=image.end_offset)

    def _write_now(self, image: ClusterImage, now_ms: int) -> list[int]:
        return write_snapshot(self._env.disk, self._log.directory, image, now_ms=now_ms)
