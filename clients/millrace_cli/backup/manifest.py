"""The manifest of a backup: what is in its directory, as one JSON file that is replaced as a whole.

Owns the values and their format. Refuses to know files and brokers. A file of records that the
manifest does not name is no part of the backup. The names of files come from numbers and topic ids,
so that no manifest can name a file elsewhere.

    manifest.json     {"format": "millrace backup", "version": 1, "crc32c": N, "backup": {...}}
    lock              held by the process that writes
    topics/TOPIC_ID/PARTITION/START_OFFSET.RUN.log      record batches, as in a segment (W-9.1)

`crc32c` covers the value of `backup`, as JSON with sorted keys and without spaces. Keys that are
not known are ignored: a version is for what an older millrace would get wrong.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final

import crc32c

from millrace_cli.exits import InputError

MANIFEST_NAME: Final = "manifest.json"
FORMAT: Final = "millrace backup"
VERSION: Final = 1
FILES_MAX: Final = 200_000
"""Files of a backup: some 30 MB of manifest."""


@dataclass(frozen=True, slots=True)
class BackupFile:
    """Batches with the offsets `[start_offset, end_offset)`, written by the backup `run`."""

    start_offset: int
    end_offset: int
    size_bytes: int
    crc32c: int
    """Of the whole file."""
    run: int


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The last batch of a partition, by which the next backup sees that the log goes on from it."""

    base_offset: int
    leader_epoch: int
    crc: int
    """CRC-32C of the batch, as in its header."""


@dataclass(frozen=True, slots=True)
class BackupPartition:
    """The records `[start_offset, end_offset)`.

    The first file may begin before `start_offset`, and offsets may be missing: in a compacted log,
    and where retention was faster than the backup.
    """

    start_offset: int
    end_offset: int
    files: tuple[BackupFile, ...]
    last_batch: LastBatch | None

    @property
    def size_bytes(self) -> int:
        """The bytes of its files."""
        return sum(file.size_bytes for file in self.files)


@dataclass(frozen=True, slots=True)
class BackupTopic:
    """A topic with its own settings, as text by name; its partitions by number."""

    name: str
    topic_id: uuid.UUID
    replication_factor: int
    configs: Mapping[str, str]
    partitions: tuple[BackupPartition, ...]


@dataclass(frozen=True, slots=True)
class Backup:
    """All that a backup holds after its run number `run`, which counts from 1."""

    run: int
    cluster_id: str
    began_ms: int
    ended_ms: int
    topics: tuple[BackupTopic, ...]

    @property
    def file_count(self) -> int:
        """The number of files with records."""
        return sum(len(p.files) for topic in self.topics for p in topic.partitions)

    @property
    def size_bytes(self) -> int:
        """The bytes of all files with records."""
        return sum(p.size_bytes for topic in self.topics for p in topic.partitions)

    def topic_of(self, topic_id: uuid.UUID) -> BackupTopic | None:
        """The topic of that id, None if it is not in the backup."""
        return next((topic for topic in self.topics if topic.topic_id == topic_id), None)


def partition_path(topic_id: uuid.UUID, number: int) -> str:
    """The directory of a partition, below that of the backup."""
    return f"topics/{topic_id}/{number}"


def file_path(topic_id: uuid.UUID, number: int, file: BackupFile) -> str:
    """The path of a file, below the directory of the backup."""
    return f"{partition_path(topic_id, number)}/{file_name(file.start_offset, file.run)}"


def file_name(start_offset: int, run: int) -> str:
    """The name of a file of records. Two runs never write the same one."""
    return f"{start_offset:020d}.{run}.log"


def encode_manifest(backup: Backup) -> bytes:
    """The content of the file."""
    content = _as_json(backup)
    whole = {
        "format": FORMAT,
        "version": VERSION,
        "crc32c": _crc(content),
        "backup": content,
    }
    return json.dumps(whole, separators=(",", ":")).encode() + b"\n"


def decode_manifest(data: bytes, where: str) -> Backup:
    """The backup of a manifest's content. Raises `InputError`, which names `where`."""
    try:
        whole = json.loads(data)
    except (ValueError, RecursionError):
        whole = None
    if not isinstance(whole, dict) or whole.get("format") != FORMAT:
        raise InputError(f"{where} is not the manifest of a backup; name a directory that has one")
    version, content = whole.get("version"), whole.get("backup")
    if isinstance(version, int) and version > VERSION:
        raise InputError(
            f"{where} has version {version} and this millrace reads {VERSION}; use a newer one"
        )
    is_whole = version == VERSION and whole.get("crc32c") == _crc(content)
    if not is_whole or not isinstance(content, dict):
        raise _damaged(where)
    try:
        return _backup(content)
    except (KeyError, TypeError, ValueError, AttributeError):
        raise _damaged(where) from None


def _damaged(where: str) -> InputError:
    return InputError(f"{where} is damaged: its checksum does not fit; restore it from a copy")


def _crc(content: object) -> int:
    text = json.dumps(content, sort_keys=True, separators=(",", ":"))
    crc: int = crc32c.crc32c(text.encode())
    return crc


def _as_json(backup: Backup) -> dict[str, Any]:
    content = asdict(backup)
    for topic in content["topics"]:
        topic["topic_id"] = str(topic["topic_id"])
    # Tuples are lists in what is read, and their CRC is the same.
    return content


def _backup(content: Mapping[str, Any]) -> Backup:
    return Backup(
        int(content["run"]),
        str(content["cluster_id"]),
        int(content["began_ms"]),
        int(content["ended_ms"]),
        tuple(map(_topic, content["topics"])),
    )


def _topic(content: Mapping[str, Any]) -> BackupTopic:
    return BackupTopic(
        str(content["name"]),
        uuid.UUID(content["topic_id"]),
        int(content["replication_factor"]),
        {str(name): str(value) for name, value in content["configs"].items()},
        tuple(map(_partition, content["partitions"])),
    )


def _partition(content: Mapping[str, Any]) -> BackupPartition:
    last = content["last_batch"]
    return BackupPartition(
        int(content["start_offset"]),
        int(content["end_offset"]),
        tuple(
            BackupFile(
                int(file["start_offset"]),
                int(file["end_offset"]),
                int(file["size_bytes"]),
                int(file["crc32c"]),
                int(file["run"]),
            )
            for file in content["files"]
        ),
        None
        if last is None
        else LastBatch(int(last["base_offset"]), int(last["leader_epoch"]), int(last["crc"])),
    )
