"""`millrace backup`: backups of a cluster, and their check.

Owns the flags and the output. `millrace_cli.backup` does the work.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from millrace_cli.client_settings import Settings, client_settings
from millrace_cli.exits import Exit, ended, run, run_blocking, tell
from millrace_cli.json_output import Json, print_json
from millrace_cli.servers import (
    DEFAULT_BROKER_TIMEOUT_S,
    DEFAULT_SERVERS,
    BrokerTimeout,
    Servers,
)
from millrace_cli.table import show

if TYPE_CHECKING:
    from millrace_cli.backup.manifest import Backup

backup = typer.Typer(name="backup", help="Back up a cluster while it runs.", no_args_is_help=True)
Directory = Annotated[
    Path, typer.Argument(metavar="DIRECTORY", help="The directory of the backup.")
]


@backup.command()
def create(
    directory: Directory,
    broker_timeout: BrokerTimeout = DEFAULT_BROKER_TIMEOUT_S,
    setting: Settings = None,
    as_json: Json = False,
    servers: Servers = DEFAULT_SERVERS,
) -> None:
    """Back up all topics and committed offsets into a directory.

    The first run copies everything, and a later one into the same directory what is new. Producers,
    consumers and groups go on meanwhile. The backup holds every record that was acknowledged before
    the run began and is not deleted, and no group's offset in it is behind the records. A run that
    fails leaves the backup as it was.
    """
    from millrace.config import ClientConfig

    settings = client_settings(setting, ClientConfig)

    async def work() -> Exit:
        import time

        from millrace_cli.backup.byte_progress import byte_progress
        from millrace_cli.backup.directory import BackupDirectory
        from millrace_cli.backup.run import RunCounts, take_backup
        from millrace_server.disk.lock import DataDirectoryLocked

        counts = RunCounts()
        try:
            with BackupDirectory(directory).locked(), byte_progress("backup", counts):
                result = await take_backup(
                    directory,
                    servers,
                    settings=settings,
                    timeout_s=broker_timeout,
                    wall_ms=lambda: time.time_ns() // 1_000_000,
                    counts=counts,
                )
        except DataDirectoryLocked as error:
            return ended(Exit.LOCKED, f"{directory} is in use by another backup, {error.pid}")
        for name in result.deleted_topics:
            tell(f"topic {name} was deleted during the backup and is not in it")
        for denial in result.hidden_topics:
            tell(f"{denial}; the backup does not have it")
        added = {"copied_files": result.copied_files, "copied_bytes": result.copied_bytes}
        return _show({**_figures(result.backup), **added}, as_json)

    run(work())


@backup.command()
def verify(directory: Directory, as_json: Json = False) -> None:
    """Read all of a backup and check it.

    Checks the size and the checksum of each file, the CRC of each batch, and its offsets. The exit
    code is 65 if something is damaged, and stderr names the file.
    """

    def work() -> Exit:
        from millrace_cli.backup.byte_progress import byte_progress
        from millrace_cli.backup.contents import verify as verify_backup
        from millrace_cli.backup.directory import BackupDirectory
        from millrace_cli.backup.run import RunCounts

        found = BackupDirectory(directory).read()
        counts = RunCounts(total_bytes=found.size_bytes)

        def on_bytes(size: int) -> None:
            counts.read_bytes += size

        with byte_progress("verify", counts):
            verify_backup(directory, found, on_bytes)
        return _show(_figures(found), as_json)

    run_blocking(work)


def _figures(found: Backup) -> dict[str, int]:
    return {
        "run": found.run,
        "began_ms": found.began_ms,
        "topics": len(found.topics),
        "partitions": sum(len(topic.partitions) for topic in found.topics),
        "files": found.file_count,
        "bytes": found.size_bytes,
    }


def _show(figures: dict[str, int], as_json: bool) -> Exit:
    if as_json:
        print_json(figures)
    else:
        show([f"{name.replace('_', ' ')} #" for name in figures], [tuple(figures.values())])
    return Exit.OK
