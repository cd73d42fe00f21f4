"""What must hold of the replicas of a partition at every moment."""

from __future__ import annotations

from millrace_server.replication.messages import PartitionKey
from tests.replication.controller import Image, Partition
from tests.replication.replica_log import Entry, ReplicaLog


class Violation(AssertionError):
    """An invariant does not hold."""


DELETED = Entry(-1, "of a part of the log that the leader has deleted: any record")


class Invariants:
    """Sees every log from outside. Raises `Violation`."""

    def __init__(self) -> None:
        self.committed: dict[PartitionKey, list[Entry]] = {}
        self.acked: dict[PartitionKey, dict[int, Entry]] = {}
        """What was acked with acks=all, by offset."""
        self.unclean_epochs: dict[PartitionKey, int] = {}
        self._leaders: dict[tuple[PartitionKey, int], tuple[int, int]] = {}
        self._commit_epochs: dict[PartitionKey, list[int]] = {}
        """The epoch of the leader that committed each record."""
        self._is_loss_open: set[PartitionKey] = set()

    def on_log(self, name: str, log: ReplicaLog, high_watermark: int) -> None:
        """`log start <= high watermark <= log end` (KAFKA-5634)."""
        if not log.start_offset <= high_watermark <= log.end_offset:
            raise Violation(
                f"{name} begins at {log.start_offset} and ends at {log.end_offset}, and its high "
                f"watermark is {high_watermark}"
            )

    def on_leader(
        self,
        key: PartitionKey,
        process: tuple[int, int],
        epoch: int,
        log: ReplicaLog,
        high_watermark: int,
    ) -> None:
        """One leader in an epoch, and it has everything that is committed."""
        if self._leaders.setdefault((key, epoch), process) != process:
            raise Violation(f"{self._leaders[key, epoch]} and {process} lead epoch {epoch}")
        if epoch < self.unclean_epochs.get(key, -1):
            return
        if key in self._is_loss_open:
            self._is_loss_open.discard(key)
            self._accept_loss(key, log, high_watermark)
        # A leader that was paused may be late: what later epochs have committed it need not have.
        count = len(self.committed[key])
        for offset, commit_epoch in enumerate(self._commit_epochs.get(key, ())):
            if commit_epoch >= epoch:
                count = offset
                break
        self._check_holds(key, f"{process}, which leads epoch {epoch},", log, count)

    def on_unclean_election(self, key: PartitionKey, epoch: int) -> None:
        """The topic accepts that records are lost: the log of the leader is what is left."""
        self.unclean_epochs[key] = epoch
        self._is_loss_open.add(key)

    def _accept_loss(self, key: PartitionKey, log: ReplicaLog, high_watermark: int) -> None:
        start_offset = log.start_offset
        count = max(high_watermark, min(len(self.committed[key]), log.end_offset))
        kept = log.read(start_offset, count - start_offset)
        self.committed[key] = [*[DELETED] * start_offset, *kept]
        self._commit_epochs[key] = [-1] * count
        self.acked[key] = {
            offset: entry
            for offset, entry in self.acked[key].items()
            if offset < count and self.committed[key][offset] == entry
        }

    def on_high_watermark(
        self,
        key: PartitionKey,
        name: str,
        log: ReplicaLog,
        before: int,
        offset: int,
        *,
        epoch: int,
    ) -> None:
        """It never goes back, and committed records never change, whichever replica says so."""
        if offset < before:
            raise Violation(f"the high watermark of {name} goes back from {before} to {offset}")
        committed = self.committed[key]
        if key in self.unclean_epochs and before > len(committed):
            # A replica with a log that came back knows what was committed before the loss.
            committed += [DELETED] * (log.start_offset - len(committed))
            committed += log.read(len(committed), before - len(committed))
            self._commit_epochs[key] = [-1] * len(committed)
        start_offset = max(before, log.start_offset)
        entries = log.read(start_offset, offset - start_offset)
        if len(entries) < offset - start_offset:
            raise Violation(f"{name} has committed {offset} and ends at {log.end_offset}")
        for number, entry in enumerate(entries, start_offset):
            if number == len(committed):
                committed.append(entry)
                self._commit_epochs.setdefault(key, []).append(epoch)
            elif number > len(committed) or committed[number] not in (entry, DELETED):
                raise Violation(f"{name} has another committed record at offset {number}: {entry}")

    def on_ack(self, key: PartitionKey, offset: int, entry: Entry) -> None:
        """A produce with acks=all is answered."""
        if self.committed[key][offset : offset + 1] != [entry]:
            raise Violation(f"{entry} is acked at {offset} and not committed there")
        self.acked[key][offset] = entry

    def on_image(self, image: Image) -> None:
        """No member of an ISR is fenced or stopping, but for the last one (KIP-841)."""
        for partition in image.partitions.values():
            for broker_id in partition.state.isr if len(partition.state.isr) > 1 else ():
                if not image.brokers[broker_id].may_join_isr:
                    raise Violation(f"broker {broker_id} is unfit and in {partition.state.isr}")

    def on_replicas(
        self, key: PartitionKey, partition: Partition, logs: dict[int, ReplicaLog]
    ) -> None:
        """Every replica of which a leader may be elected has everything that is committed.

        `logs` are those of the brokers that have lost nothing since they registered.
        """
        if key not in self._is_loss_open:
            for broker_id in (*partition.state.isr, *partition.elr):
                if broker_id in logs:
                    name, count = f"broker {broker_id}, which may lead,", len(self.committed[key])
                    self._check_holds(key, name, logs[broker_id], count)

    def check_acked(self, key: PartitionKey, log: ReplicaLog) -> None:
        """At the end everything that was acked with acks=all is there."""
        for offset, entry in self.acked[key].items():
            if offset >= log.start_offset and log.read(offset, 1) != (entry,):
                raise Violation(f"{entry} was acked at offset {offset} and is gone")

    def _check_holds(self, key: PartitionKey, name: str, log: ReplicaLog, count: int) -> None:
        committed = self.committed[key][log.start_offset : count]
        entries = log.read(log.start_offset, len(committed))
        pairs = zip(committed, entries, strict=False)
        differs = any(wanted not in (entry, DELETED) for wanted, entry in pairs)
        if differs or len(entries) < len(committed):
            raise Violation(
                f"{name} does not have the committed records from {log.start_offset} to "
                f"{count}: it ends at {log.end_offset}"
            )
