"""The progress of `millrace produce` over the bytes of its files: a bar on a terminal.

Owns the display. There is no bar for stdin, whose size is not known.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def read_progress(
    files: Sequence[str], *, clock: Callable[[], float] = time.monotonic
) -> Iterator[Callable[[int], None]]:
    """A function to call with the size of each chunk that was read. The bar goes at the end."""
    if not sys.stderr.isatty() or "-" in files:
        yield lambda _: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (BarColumn(), DownloadColumn(), TransferSpeedColumn(), TimeRemainingColumn())
    console = Console(stderr=True)
    with Progress(*columns, console=console, transient=True, get_time=clock) as progress:
        task = progress.add_task("", total=sum(Path(name).stat().st_size for name in files))
        yield lambda size: progress.advance(task, size)
