"""The progress of replicas that move to other brokers: counted, shown on stderr, waited for.

Owns the counts and the display. Asks the active controller how far each reassignment is, and the
brokers how many bytes they have.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass

from rich.filesize import decimal

from millrace.admin import Admin
from millrace.brokers import Reassignment
from millrace.errors import MillraceError
from millrace.records import TopicPartition
from millrace_cli.progress_display import Shown, displayed
from millrace_cli.visible_text import counted

POLL_S = 0.5
Ongoing = Mapping[TopicPartition, Reassignment]


@dataclass(slots=True)
class MoveProgress:
    """How far replicas are: partitions that are still to be moved, and bytes of new replicas.

    `copied_bytes` and `total_bytes` are of the replicas that are not in sync yet.
    """

    partitions: int
    left: int
    copied_bytes: int = 0
    total_bytes: int = 0

    def shown(self, seconds: float) -> Shown:
        """What a display shows of it."""
        done = max(0, self.partitions - self.left)
        figures = f"{done} of {counted(self.partitions, 'partition')} moved"
        if self.total_bytes:
            figures += f", {decimal(self.copied_bytes)} of {decimal(self.total_bytes)} copied"
        counts = (done, self.copied_bytes, self.total_bytes)
        return Shown(counts, figures, done, self.partitions)


async def wait_until_moved(
    admin: Admin,
    find: Callable[[], Awaitable[Ongoing]],
    *,
    action: str,
    partitions: int,
) -> None:
    """Returns when `find` finds no reassignment in progress any more; shows the progress."""
    progress = MoveProgress(partitions, partitions)
    with displayed(action, progress.shown, total=partitions):
        while ongoing := await find():
            progress.left = len(ongoing)
            progress.copied_bytes, progress.total_bytes = await _copied(admin, ongoing)
            await asyncio.sleep(POLL_S)
        progress.left = progress.copied_bytes = progress.total_bytes = 0


async def _copied(admin: Admin, ongoing: Ongoing) -> tuple[int, int]:
    """Bytes of replicas that catch up, and those that they will have; zeros where not known."""
    try:
        directories = await admin.describe_log_dirs({where.topic for where in ongoing})
    except MillraceError:
        return 0, 0
    sizes = {
        (directory.node_id, where): max(0, size.size_bytes)
        for directory in directories
        for where, size in directory.partitions.items()
    }
    copied = total = 0
    for where, each in ongoing.items():
        whole = _largest(sizes, where, each.isr)
        for broker in each.missing:
            total += whole
            copied += min(whole, sizes.get((broker, where), 0))
    return copied, total


def _largest(
    sizes: Mapping[tuple[int, TopicPartition], int],
    where: TopicPartition,
    brokers: Collection[int],
) -> int:
    return max((sizes.get((broker, where), 0) for broker in brokers), default=0)
