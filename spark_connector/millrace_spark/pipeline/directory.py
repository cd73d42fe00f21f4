"""The directory of an import: its lock, its ledger, and its files, which appear complete.

    DIR/
      part-clicks-0-00000000000000000000-00000000000000065536.parquet    (or in date=.../)
      _millrace/lock            held while an import runs; the kernel drops it with the process
      _millrace/ledger.json     the imported offsets, and the open batch
      _millrace/done/7/12       marker: the result of range 12 of batch 7, while batch 7 is open
      _millrace/staging/        files that are being written

Owns durability: a file is synced before it gets its name, and the name before the call returns.
Readers of files (Spark, pyarrow, DuckDB with a glob) ignore names that begin with `_`. Paths are
local, or mounted on all machines of a cluster.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from millrace.errors import ConfigError
from millrace_spark.pipeline.errors import DirectoryInUse, ImportRefused, LedgerError
from millrace_spark.pipeline.ledger import Ledger, decode, encode

OWN = "_millrace"
LEDGER_BYTES_MAX = 256 * 1024 * 1024
_MARKER_BYTES_MAX = 1 << 20
_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?:(?://)?(?P<path>/(?!/).*)|.*)", re.DOTALL
)
"""A scheme as in Spark: before the first slash. As in Spark, the path is not decoded."""


class ImportDirectory:
    """A directory of imported records. Cheap to construct, and picklable: has only the path."""

    def __init__(self, path: str) -> None:
        """Takes `/x`, `x`, `file:/x` and `file:///x`; raises `ConfigError` for another URI."""
        uri = _URI.fullmatch(path)
        if uri is not None and uri["scheme"] != "file":
            raise ConfigError(
                f"--to {path}: only local paths, or paths mounted on every machine of the "
                "cluster; other file systems do not commit a file atomically"
            )
        if uri is not None and uri["path"] is None:
            raise ConfigError(
                f"--to {path}: a file URI needs an absolute path, such as file:/data/clicks"
            )
        self.path = Path(path if uri is None else uri["path"]).absolute()

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Creates a missing directory, and excludes other imports from it.

        Raises `DirectoryInUse`, and `ImportRefused` for a directory with other files.
        """
        own = self.path / OWN
        if self.path.is_dir() and not own.is_dir() and any(self.path.iterdir()):
            raise ImportRefused(
                f"{self.path} has files that no import wrote; give an empty or new directory with "
                "--to"
            )
        _make_durably(own)
        fd = os.open(own / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            self._take(fd)
            yield
        finally:
            os.close(fd)

    def _take(self, fd: int) -> None:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                raise
            holder = os.pread(fd, 300, 0).decode(errors="replace").strip()
            raise DirectoryInUse(
                f"{self.path} is being imported into by {holder or 'another process'}: wait for "
                "it, stop it, or give another directory with --to"
            ) from None
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"process {os.getpid()} on {os.uname().nodename}\n".encode(), 0)

    # The ledger

    def load(self) -> Ledger | None:
        """The ledger, None for a new directory. Raises `LedgerError`."""
        path = self.path / OWN / "ledger.json"
        try:
            with path.open("rb") as file:
                data = file.read(LEDGER_BYTES_MAX)
        except FileNotFoundError:
            return None
        try:
            return decode(data)
        except LedgerError as error:
            raise LedgerError(f"{path} {error}; import into another directory") from None

    def store(self, ledger: Ledger) -> None:
        """Replaces the ledger; durable when this returns."""
        with self.staged() as (file, staged):
            file.write(encode(ledger))
            _sync(file)
            staged.rename(self.path / OWN / "ledger.json")
        _sync_directory(self.path / OWN)

    def require_ledger(self) -> None:
        """For a task: the path is the directory of the import on this machine too.

        Otherwise the files would stay on this machine, and the import would commit their offsets.
        Raises `ImportRefused`.
        """
        if not (self.path / OWN / "ledger.json").is_file():
            raise ImportRefused(
                f"{self.path} is not the directory of the import on {os.uname().nodename}, where a "
                "task runs; give a path with --to that the driver and all workers have mounted"
            )

    # Files of records

    @contextmanager
    def staged(self) -> Iterator[tuple[IO[bytes], Path]]:
        """A new file that readers ignore; it is deleted unless `commit_file` has renamed it."""
        directory = self.path / OWN / "staging"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{os.getpid()}-{secrets.token_hex(8)}"
        with path.open("xb") as file:
            try:
                yield file, path
            finally:
                # A failed caller leaves no file.
                with suppress(FileNotFoundError):
                    path.unlink()

    def commit_file(self, file: IO[bytes], staged: Path, name: str) -> None:
        """Renames a staged file; durable when this returns.

        An existing file of this name has the same records, from a killed task, or from a second
        attempt that Spark ran at the same time. It stays, because readers may have it open.
        """
        _sync(file)
        path = self.path / name
        _make_durably(path.parent)
        if path.exists():
            staged.unlink(missing_ok=True)
        else:
            staged.rename(path)
        # All directories: a killed task may have created one and not synced it.
        for directory in (path.parent, *path.parent.parents):
            _sync_directory(directory)
            if directory == self.path:
                break

    # Markers of finished ranges

    def mark(self, batch_number: int, index: int, text: str) -> None:
        """Marks a range as finished, for the progress and for a run after a crash.

        A marker is not synced: a power failure may lose it, and the range is written again.
        """
        directory = self.path / OWN / "done" / str(batch_number)
        directory.mkdir(parents=True, exist_ok=True)
        with self.staged() as (file, staged):
            file.write(text.encode())
            file.flush()
            staged.rename(directory / str(index))

    def markers(self, batch_number: int, *, known: Container[int] = ()) -> dict[int, str]:
        """The texts of the markers of a batch, except for the ranges in `known`."""
        directory = self.path / OWN / "done" / str(batch_number)
        found: dict[int, str] = {}
        with suppress(FileNotFoundError):
            for path in directory.iterdir():
                if int(path.name) in known:
                    continue
                with suppress(FileNotFoundError), path.open("rb") as file:
                    found[int(path.name)] = file.read(_MARKER_BYTES_MAX).decode(errors="replace")
        return found

    def delete_temporary(self) -> None:
        """Deletes the files that only an open batch needs."""
        for name in ("staging", "done"):
            shutil.rmtree(self.path / OWN / name, ignore_errors=True)

    def delete_batch(self, names: Container[str]) -> None:
        """Deletes all files of an open batch, which have these names, and its markers.

        First the markers, so that a run after a crash writes the files again.
        """
        self.delete_temporary()
        _sync_directory(self.path / OWN)
        for path in [each for each in self.path.rglob("part-*") if each.name in names]:
            path.unlink(missing_ok=True)
            for directory in path.parents:
                if directory == self.path or any(directory.iterdir()):
                    _sync_directory(directory)
                    break
                directory.rmdir()

    def delete_staging(self) -> None:
        """Deletes the unfinished files of a killed process."""
        shutil.rmtree(self.path / OWN / "staging", ignore_errors=True)


def _make_durably(path: Path) -> None:
    """Creates a directory with its parents, and syncs the parent of each."""
    if path.is_dir():
        return
    _make_durably(path.parent)
    path.mkdir(exist_ok=True)
    _sync_directory(path.parent)


def _sync(file: IO[bytes]) -> None:
    file.flush()
    os.fsync(file.fileno())


def _sync_directory(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
