"""The leader epochs of a history: the epoch of each offset, and of each leader.

Owns the rules. In one life of a partition an offset is in one epoch, and epochs never fall along
the offsets (KIP-101). A process that was told of an epoch is not told of an older one later.
Refuses to know values.
"""

from __future__ import annotations

from tests.history.anomalies import Kind, Report
from tests.history.operations import Fetched, Led

_Batch = tuple[int, int, int]
"""Base offset, last offset and epoch."""


class Epochs:
    """All that was told of epochs in one history, followed in its order."""

    def __init__(self, report: Report) -> None:
        self._report = report
        self._batches: dict[str, dict[_Batch, int]] = {}
        """Per partition, each batch that was seen and the operation that gave it first."""
        self._led: dict[str, dict[int, tuple[int, int]]] = {}
        """Per partition and process, the latest epoch and the operation that told it."""

    def fetch(self, number: int, fetched: Fetched) -> None:
        """A process is given batches."""
        batches = self._batches.setdefault(fetched.partition, {})
        for batch in fetched.batches:
            batches.setdefault(batch, number)

    def lead(self, number: int, led: Led) -> None:
        """A process is told in which epoch a partition is led."""
        told = self._led.setdefault(led.partition, {})
        before, told_by = told.get(led.process, (led.epoch, number))
        if led.epoch < before:
            self._report.add(
                Kind.EPOCH_BACK,
                f"{led.partition}: process {led.process} was told of leader epoch {before} and "
                f"then of {led.epoch}",
                told_by,
                number,
            )
        else:
            told[led.process] = led.epoch, number

    def forget(self, partition: str) -> None:
        """Judges what is known of a partition's life, and begins another one."""
        self._check_partition(partition)
        self._batches.pop(partition, None)
        self._led.pop(partition, None)

    def check(self) -> None:
        """Judges what is left."""
        for partition in self._batches:
            self._check_partition(partition)

    def _check_partition(self, partition: str) -> None:
        """Goes along the offsets once. `reach` ends last, `top` has the latest epoch so far."""
        batches = sorted(self._batches.get(partition, {}).items())
        if not batches:
            return
        reach = top = batches[0]
        for each in batches[1:]:
            (base, last, epoch), number = each
            if base <= reach[0][1]:
                if epoch != reach[0][2]:
                    self._report.add(
                        Kind.EPOCH_CHANGED,
                        f"{partition}: offset {base} is in leader epoch {reach[0][2]} and in "
                        f"{epoch}",
                        reach[1],
                        number,
                    )
            elif epoch < top[0][2]:
                self._report.add(
                    Kind.EPOCH_FALLS,
                    f"{partition}: offset {top[0][0]} is in leader epoch {top[0][2]}, and offset "
                    f"{base} behind it in {epoch}",
                    top[1],
                    number,
                )
            if last > reach[0][1]:
                reach = each
            if epoch > top[0][2]:
                top = each
