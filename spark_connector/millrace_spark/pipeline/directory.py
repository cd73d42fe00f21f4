"""The directory that an import lands in: its lock, its ledger, its files, each whole or not there.

    DIR/
      part-clicks-0-00000000000000000000-00000000000000065536.parquet    (or in date=.../)
      _millrace/lock            held while an import runs; the kernel drops it with the process
      _millrace/ledger.json     what DIR holds, and the landing under way
      _millrace/done/7/12       what became of range 12 of landing 7, while that is under way
      _millrace/staging/        files that are being written

Owns durability: bytes are synced before a name points to them, and the name before anybody is told.
Readers of files (Spark, pyarrow, DuckDB with a glob) pass by what begins with `_`. Local paths, and
those that all machines of a cluster mount.
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
_MARK_BYTES_MAX = 1 << 20
_URI = re.compile(
    r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*):(?:(?://)?(?P<path>/(?!/).*)|.*)", re.DOTALL
)
"""A scheme as Spark sees one: before the first slash. Nothing in the path is decoded, as there."""


class LandingDirectory:
    """A directory of landed records. Cheap to make, and picklable: holds only the path."""

    def __init__(self, path: str) -> None:
        """Takes `/x`, `x`, `file:/x` and `file:///x`; raises `ConfigError` for another URI."""
        uri = _URI.fullmatch(path)
        if uri is not None and uri["scheme"] != "file":
            raise ConfigError(
                f"--to {path}: only local paths, and those mounted on every machine of the "
                "cluster, can be landed in so that a crash leaves no half file"
            )
        if uri is not None and uri["path"] is None:
            raise ConfigError(f"--to {path}: a file URI has the whole path, as file:/data/clicks")
        self.path = Path(path if uri is None else uri["path"]).absolute()

    def __str__(self) -> str:
        return str(self.path)

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Makes the directory if need be, and keeps other imports out of it.

        Raises `DirectoryInUse`, and `ImportRefused` for a directory with files of somebody else.
        """
        own = self.path / OWN
        if self.path.is_dir() and not own.is_dir() and any(self.path.iterdir()):
            raise ImportRefused(
                f"{self.path} has files that no import wrote; give --to a directory that is empty "
                "or not there yet"
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
                "it, stop it, or give --to another directory"
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

    # Files of records

    @contextmanager
    def staged(self) -> Iterator[tuple[IO[bytes], Path]]:
        """A new file that no reader sees, gone afterwards unless `publish` has named it."""
        directory = self.path / OWN / "staging"
        directory.mkdir(parents=True, exist_ok=True)
        path = directory / f"{os.getpid()}-{secrets.token_hex(8)}"
        with path.open("xb") as file:
            try:
                yield file, path
            finally:
                # Who stopped in the middle leaves nothing.
                with suppress(FileNotFoundError):
                    path.unlink()

    def publish(self, file: IO[bytes], staged: Path, name: str) -> None:
        """Names a staged file; durable when this returns.

        A file of this name has the same records, from a task that was killed, or that Spark ran
        twice at once; it stays, because somebody may be reading it.
        """
        _sync(file)
        path = self.path / name
        _make_durably(path.parent)
        if path.exists():
            staged.unlink(missing_ok=True)
        else:
            staged.rename(path)
        # All of them: whoever made one may have been killed before it was durable.
        for directory in (path.parent, *path.parent.parents):
            _sync_directory(directory)
            if directory == self.path:
                break

    # Marks of ranges that are done

    def mark(self, landing: int, index: int, text: str) -> None:
        """Notes that all files of a range are there. Lost in a power cut, which costs a rereading.

        Is seen by a run after a crash, and by the progress of this one.
        """
        directory = self.path / OWN / "done" / str(landing)
        directory.mkdir(parents=True, exist_ok=True)
        with self.staged() as (file, staged):
            file.write(text.encode())
            file.flush()
            staged.rename(directory / str(index))

    def marks(self, landing: int, *, known: Container[int] = ()) -> dict[int, str]:
        """The texts of the ranges of a landing that are done; those known are not read again."""
        directory = self.path / OWN / "done" / str(landing)
        found: dict[int, str] = {}
        with suppress(FileNotFoundError):
            for path in directory.iterdir():
                if int(path.name) in known:
                    continue
                with suppress(FileNotFoundError), path.open("rb") as file:
                    found[int(path.name)] = file.read(_MARK_BYTES_MAX).decode(errors="replace")
        return found

    def sweep(self) -> None:
        """Removes what only a landing under way needs."""
        for name in ("staging", "done"):
            shutil.rmtree(self.path / OWN / name, ignore_errors=True)

    def sweep_staging(self) -> None:
        """Removes files that a killed process has left half written."""
        shutil.rmtree(self.path / OWN / "staging", ignore_errors=True)


def _make_durably(path: Path) -> None:
    """Makes a directory and those above it, each durable in its own parent."""
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
