"""`millrace restore`: a data directory from a backup.

Owns the flags and the output. `millrace_cli.backup.restoration` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from millrace_cli.exits import Exit, run_blocking, tell
from millrace_cli.json_output import Json, print_json
from millrace_cli.table import show

_KEYS = ("topic", "partition", "start_offset", "end_offset", "bytes", "replication_factor")


def restore(
    backup: Annotated[Path, typer.Argument(metavar="BACKUP", help="The directory of the backup.")],
    data: Annotated[
        Path, typer.Option(metavar="DIRECTORY", help="A new or empty directory for the broker.")
    ],
    node_id: Annotated[
        int, typer.Option(metavar="ID", min=0, max=2**31 - 1, help="The broker's node_id.")
    ] = 0,
    config: Annotated[
        list[str] | None,
        typer.Option(
            "--config",
            "-c",
            metavar="NAME=VALUE",
            help="A setting that every topic gets; retention.ms=-1 keeps all; may be repeated.",
        ),
    ] = None,
    as_json: Json = False,
) -> None:
    """Make a data directory of a backup, in which a broker starts as a cluster of one.

    It has all topics with their ids, settings and records, at the same offsets, and the committed
    offsets of all groups. Everything that is read is checked. A restore that fails leaves the
    directory as it was.

    Prints the partitions. replication_factor is that of the cluster that was backed up.
    """
    configs = _configs(config or [])

    run_blocking(lambda: _restore(backup, data, node_id, configs, as_json=as_json))


def _restore(
    backup: Path, data: Path, node_id: int, configs: dict[str, str], *, as_json: bool
) -> Exit:
    import time
    import uuid

    from millrace_cli.backup.byte_progress import byte_progress
    from millrace_cli.backup.directory import BackupDirectory
    from millrace_cli.backup.restoration import Target, check_empty
    from millrace_cli.backup.restoration import restore as restore_backup
    from millrace_cli.backup.run import RunCounts

    found = BackupDirectory(backup).read()
    check_empty(data)
    counts = RunCounts(total_bytes=found.size_bytes)

    def on_bytes(size: int) -> None:
        counts.read_bytes += size

    target = Target(data, node_id, uuid.uuid4(), configs)
    with byte_progress("restore", counts):
        now_ms = time.time_ns() // 1_000_000
        changes = restore_backup(backup, found, target, now_ms=now_ms, on_bytes=on_bytes)
    for change in changes:
        tell(change)
    rows = [
        (topic.name, n, p.start_offset, p.end_offset, p.size_bytes, topic.replication_factor)
        for topic in found.topics
        for n, p in enumerate(topic.partitions)
    ]
    if as_json:
        print_json({"partitions": [dict(zip(_KEYS, row, strict=True)) for row in rows]})
    else:
        show(("topic", "partition #", "start #", "end #", "bytes #", "replicas #"), rows)
    return Exit.OK


def _configs(pairs: list[str]) -> dict[str, str]:
    configs = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise typer.BadParameter(f"--config: {pair!r} is not NAME=VALUE")
        configs[name] = value
    return configs
