"""What tells whether a file that an operator may renew has changed."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class FileStamp(NamedTuple):
    """A file with another stamp than before has changed."""

    modified_ns: int
    inode: int
    size: int

    @classmethod
    def of(cls, path: str | Path) -> FileStamp:
        """The stamp of a file now. Raises `OSError`."""
        found = Path(path).stat()
        return cls(found.st_mtime_ns, found.st_ino, found.st_size)
