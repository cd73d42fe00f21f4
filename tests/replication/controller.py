"""The rules of a perfect controller, as far as replication needs them (KIP-497, 841, 903, 966).

It never fails, and never forgets. What it decides is an image, which every broker sees late.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace_server.replication.effects import ProposeIsr
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.leader import BrokerState
from millrace_server.replication.messages import PartitionKey


@dataclass(frozen=True)
class Registration:
    """A broker. `is_stopping`: it is in controlled shutdown."""

    epoch: int
    directory: int
    is_fenced: bool = True
    is_stopping: bool = False

    @property
    def may_join_isr(self) -> bool:
        return not self.is_fenced and not self.is_stopping


@dataclass(frozen=True)
class Partition:
    """One partition as it is decided; `elr` are replicas outside the ISR with all committed."""

    state: PartitionState
    leader: int | None
    elr: frozenset[int] = frozenset()
    is_synced: bool = True
    allows_loss: bool = False


@dataclass(frozen=True)
class Image:
    """All that is decided so far."""

    version: int
    brokers: Mapping[int, Registration]
    partitions: Mapping[PartitionKey, Partition]

    def get(self, broker_id: int) -> BrokerState | None:
        """Implements `BrokerStates`."""
        found = self.brokers.get(broker_id)
        return None if found is None else BrokerState(found.epoch, found.may_join_isr)


class Refused(Exception):
    """A proposal that is not taken. `is_decided`: it can never take effect."""

    def __init__(self, *, is_decided: bool) -> None:
        super().__init__()
        self.is_decided = is_decided


class Controller:
    """`image` is replaced with every change."""

    def __init__(self, partitions: Mapping[PartitionKey, Partition]) -> None:
        self.image = Image(0, {}, dict(partitions))
        self.unclean_epochs: dict[PartitionKey, int] = {}
        """The last leader epoch of each partition that was begun by an unclean election."""

    def register(self, broker_id: int, directory: int, *, is_clean: bool) -> int:
        """A process starts; returns its broker epoch.

        A leader of an earlier process leads no more, even if it is elected again. Without its disk,
        or without the end of its log, a broker is not in sync.
        """
        before = self.image.brokers.get(broker_id)
        epoch = self.image.version + 1
        self._change(broker=(broker_id, Registration(epoch, directory)))
        is_wiped = before is not None and before.directory != directory
        for key, partition in self.image.partitions.items():
            if is_wiped or not (is_clean or partition.is_synced):
                isr = tuple(b for b in partition.state.isr if b != broker_id)
                self._put(key, self._with_isr(partition, isr, lost=broker_id))
        self._withdraw(broker_id)
        return epoch

    def fence(self, broker_id: int) -> None:
        """A broker is silent."""
        self._change(broker=(broker_id, replace(self.image.brokers[broker_id], is_fenced=True)))
        self._withdraw(broker_id)

    def unfence(self, broker_id: int) -> None:
        """A broker is back."""
        self._change(broker=(broker_id, replace(self.image.brokers[broker_id], is_fenced=False)))
        self._elect_where_none_leads()

    def begin_shutdown(self, broker_id: int) -> None:
        """A broker wants to stop: its leaders move, and it leaves every ISR that has others."""
        self._change(broker=(broker_id, replace(self.image.brokers[broker_id], is_stopping=True)))
        self._withdraw(broker_id, keep_last=True)

    def move_leader(self, key: PartitionKey) -> None:
        """Another member of the ISR leads, if one may, as in a preferred election."""
        partition = self.image.partitions[key]
        others = [b for b in partition.state.isr if b != partition.leader and self._is_fit(b)]
        if partition.leader is not None and others:
            self._put(key, _with_leader(partition, others[0]))

    def elect_uncleanly(self, key: PartitionKey, *, is_forced: bool) -> None:
        """Any replica that is there leads, where no other may.

        `is_forced`: an operator says so, for a partition with nothing in ISR and ELR.
        """
        partition = self.image.partitions[key]
        if is_forced and not partition.state.isr and not partition.elr:
            partition = replace(partition, allows_loss=True)
        alive = [b for b in partition.state.replicas if self._is_fit(b)]
        if partition.leader is None and partition.allows_loss and alive:
            state = replace(partition.state, isr=(alive[0],))
            elected = _with_leader(replace(partition, state=state, elr=frozenset()), alive[0])
            self.unclean_epochs[key] = elected.state.leader_epoch
            self._put(key, elected)

    def propose(
        self, key: PartitionKey, sender: tuple[int, int], proposal: ProposeIsr
    ) -> tuple[tuple[int, ...], int]:
        """AlterPartition: returns the ISR and the partition epoch. Raises `Refused`."""
        partition = self.image.partitions[key]
        state = partition.state
        if self._epoch_of(sender[0]) != sender[1] or partition.leader != sender[0]:
            raise Refused(is_decided=False)
        if proposal.leader_epoch != state.leader_epoch:
            raise Refused(is_decided=False)
        if proposal.partition_epoch != state.partition_epoch:
            raise Refused(is_decided=False)
        if not all(self._is_eligible(*member) for member in proposal.isr):
            raise Refused(is_decided=True)
        if not set(proposal.broker_ids) <= set(state.replicas):
            raise Refused(is_decided=True)
        self._put(key, self._with_isr(partition, proposal.broker_ids))
        changed = self.image.partitions[key].state
        return changed.isr, changed.partition_epoch

    def _is_eligible(self, broker_id: int, epoch: int) -> bool:
        found = self.image.brokers.get(broker_id)
        return found is not None and found.may_join_isr and epoch in (-1, found.epoch)

    def _epoch_of(self, broker_id: int) -> int | None:
        found = self.image.brokers.get(broker_id)
        return None if found is None else found.epoch

    def _is_fit(self, broker_id: int) -> bool:
        found = self.image.brokers.get(broker_id)
        return found is not None and found.may_join_isr

    def _withdraw(self, broker_id: int, *, keep_last: bool = False) -> None:
        for key, partition in self.image.partitions.items():
            isr = tuple(b for b in partition.state.isr if b != broker_id)
            if keep_last and not isr:
                continue
            if len(isr) < len(partition.state.isr):
                partition = self._with_isr(partition, isr)
            if partition.leader == broker_id:
                partition = _with_leader(partition, None)
            self._put(key, partition)
        self._elect_where_none_leads()

    def _with_isr(
        self, partition: Partition, isr: tuple[int, ...], *, lost: int | None = None
    ) -> Partition:
        """Below `min.insync.replicas` nothing is committed: replicas that leave stay eligible."""
        state = replace(partition.state, isr=isr)
        elr: frozenset[int] = frozenset()
        if len(isr) < state.isr_needed:
            elr = (partition.elr | frozenset(partition.state.isr)) - frozenset(isr)
        return replace(partition, state=_counted(state), elr=elr - {lost})

    def _elect_where_none_leads(self) -> None:
        for key, partition in self.image.partitions.items():
            if partition.leader is not None:
                continue
            in_sync = [b for b in partition.state.isr if self._is_fit(b)]
            eligible = [b for b in partition.state.replicas if b in partition.elr]
            eligible = [b for b in eligible if self._is_fit(b)]
            if in_sync:
                self._put(key, _with_leader(partition, in_sync[0]))
            elif eligible:
                isr = (*partition.state.isr, eligible[0])
                self._put(key, _with_leader(self._with_isr(partition, isr), eligible[0]))

    def _put(self, key: PartitionKey, partition: Partition) -> None:
        if partition != self.image.partitions[key]:
            partitions = {**self.image.partitions, key: partition}
            self.image = Image(self.image.version + 1, self.image.brokers, partitions)

    def _change(self, *, broker: tuple[int, Registration]) -> None:
        brokers = {**self.image.brokers, broker[0]: broker[1]}
        self.image = Image(self.image.version + 1, brokers, self.image.partitions)


def _counted(state: PartitionState) -> PartitionState:
    return replace(state, partition_epoch=state.partition_epoch + 1)


def _with_leader(partition: Partition, leader: int | None) -> Partition:
    state = replace(partition.state, leader_epoch=partition.state.leader_epoch + 1)
    return replace(partition, state=_counted(state), leader=leader)
