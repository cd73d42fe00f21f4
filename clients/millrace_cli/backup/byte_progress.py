"""The progress of a backup, a check or a restore, over the bytes that are read."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from millrace_cli.progress_display import Shown, displayed

if TYPE_CHECKING:
    from millrace_cli.backup.run import RunCounts

_MIB = 1 << 20


def byte_progress(action: str, counts: RunCounts) -> AbstractContextManager[None]:
    """Shows the counts on stderr until the block ends."""

    def shown(seconds: float) -> Shown:
        read, total = counts.read_bytes, counts.total_bytes or None
        rate = read / _MIB / max(seconds, 1e-3)
        figures = f"{read / _MIB:,.1f} MiB, {rate:,.1f} MiB/s"
        return Shown((read, total), figures, read, total)

    return displayed(action, shown)
