"""What must be true of a cluster at every moment, whatever its clients see of it.

    one controller in each epoch of the quorum, one leader in each epoch of a partition: a process
        leads an epoch, and no other one does, nor does the broker after a restart
    committed metadata is the same on every broker, and does not get lost
    the replicas of a partition agree below the high watermark of each
    in the metadata: the leader is in the ISR, the ISR is part of the replicas

Owns the rules. What happens within a broker is noticed at a few of its methods; logs are compared
from time to time, and only what is new of them. Logs that are compacted are left out: each replica
compacts its own.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from millrace_protocol.metadata_records import NO_LEADER
from millrace_protocol.records import HEADER_SIZE, batch_span
from millrace_server.controller.metadata_publisher import MetadataPublisher
from millrace_server.controller.metadata_storage import METADATA_TOPIC_ID
from millrace_server.log import PartitionLog
from millrace_server.metadata.image import ClusterImage
from millrace_server.node import Node
from millrace_server.partitions.partition import Partition
from millrace_server.quorum.metadata_log import METADATA_TOPIC
from millrace_server.quorum.replica import QuorumReplica
from millrace_server.replicas.replica_fetcher import ReplicaFetcher
from millrace_server.replicas.replica_manager import ReplicaManager
from millrace_server.replication.effects import ReportLoss, Reset, Truncate
from millrace_simulation.loop import running_process
from millrace_simulation.trace import Trace
from tests.sim.ledger import partition_name

Key = tuple[uuid.UUID, int]
Place = tuple[int, int]
"""The base offset of a segment, and a position in it."""


class Invariants:
    """What was true so far in one run."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._controllers: dict[int, str] = {}
        self._leaders: dict[tuple[Key, int], str] = {}
        self._images: dict[int, ClusterImage] = {}
        self._headers: dict[Key, dict[int, tuple[bytes, str]]] = {}
        """The header of each committed batch by its base offset, and the broker it was seen on."""
        self._compared: dict[tuple[str, Key], Place] = {}

    @property
    def committed_offset(self) -> int:
        """The end of the metadata that any broker has seen committed."""
        return max(self._images, default=0)

    # What is noticed when it happens

    def controls(self, epoch: int) -> None:
        """The running process leads the quorum."""
        name = running_process().name
        self._trace.sometimes("a controller was elected")
        if self._controllers.setdefault(epoch, name) != name:
            self._trace.violation(
                f"{self._controllers[epoch]} and {name} are controllers in epoch {epoch}"
            )

    def leads(self, key: Key, epoch: int, partition: str) -> None:
        """The running process leads a partition."""
        name = running_process().name
        if epoch > 0:
            self._trace.sometimes("a partition was led in a new epoch")
        first = self._leaders.setdefault((key, epoch), name)
        if first != name:
            self._trace.violation(f"{first} and {name} lead {partition} in epoch {epoch}")

    def published(self, image: ClusterImage) -> None:
        """The running process takes an image as committed."""
        known = self._images.setdefault(image.end_offset, image)
        if known != image:
            name = running_process().name
            self._trace.violation(
                f"{name} has other metadata at offset {image.end_offset} than others: {image} "
                f"and {known}"
            )
        elif known is image:
            self._check_image(image)

    def _check_image(self, image: ClusterImage) -> None:
        for topic in image.topics.values():
            for number, partition in enumerate(topic.partitions):
                is_led = partition.leader != NO_LEADER
                if is_led and partition.leader not in partition.isr:
                    self._trace.violation(f"{topic.name}-{number}: no leader of its ISR")
                if not set(partition.isr) <= set(partition.replicas):
                    self._trace.violation(f"{topic.name}-{number}: an ISR of others")
                if len(partition.isr) > 1 and not all(
                    image.brokers[broker_id].is_active for broker_id in partition.isr
                ):
                    self._trace.violation(f"{topic.name}-{number}: a fenced broker is in the ISR")
                if len(partition.isr) < len(partition.replicas):
                    self._trace.sometimes("an ISR was smaller than the replicas")
                if partition.elr:
                    self._trace.sometimes("a replica was eligible outside the ISR")

    # What is compared from time to time

    def check_logs(self, broker: str, node: Node) -> None:
        """Compares what a broker has committed since with what others have."""
        image = node.broker.image
        for partition in node.broker.partitions:
            if partition.topic == METADATA_TOPIC:
                self._check_log(broker, (uuid.UUID(METADATA_TOPIC_ID), 0), partition)
                continue
            topic = image.topics.get(partition.topic)
            if topic is not None and not partition.config.compacts:
                self._check_log(broker, (topic.topic_id, partition.number), partition)

    def _check_log(self, broker: str, key: Key, partition: Partition) -> None:
        headers = self._headers.setdefault(key, {})
        since = self._compared.get((broker, key), (-1, 0))
        where = partition_name((partition.topic, partition.number))
        try:
            batches = list(_batches(partition.log, since, partition.high_watermark))
        except struct.error:
            self._trace.violation(f"{broker} has cut {where} where it was committed")
            return
        for header, place in batches:
            self._compared[broker, key] = place
            base_offset = int.from_bytes(header[:8], "big")
            known, seen_on = headers.setdefault(base_offset, (header, broker))
            if known != header:
                self._trace.violation(
                    f"{broker} and {seen_on} have other batches at offset {base_offset} of "
                    f"{where}, below the high watermark {partition.high_watermark}"
                )


def _batches(log: PartitionLog, place: Place, end_offset: int) -> Iterator[tuple[bytes, Place]]:
    """The headers of the batches before `end_offset`, each with the place behind it.

    Raises `struct.error` if no batch begins at `place`.
    """
    for segment in list(log._chain.segments):
        if segment.base_offset < place[0]:
            continue
        content = segment.file._inode.cached  # type: ignore[attr-defined]
        position = place[1] if segment.base_offset == place[0] else 0
        while position < segment.size_bytes:
            _, size_bytes, _, last_offset, _ = batch_span(content, position)
            if size_bytes < HEADER_SIZE:
                raise struct.error
            if last_offset >= end_offset:
                return
            header = bytes(content[position : position + HEADER_SIZE])
            position += size_bytes
            if last_offset >= log.start_offset:
                yield header, (segment.base_offset, position)


@contextmanager
def observed(invariants: Invariants, trace: Trace) -> Iterator[None]:
    """While it lasts, brokers tell `invariants` what they do."""
    begin_epoch, lead = QuorumReplica._begin_epoch, ReplicaManager._lead
    publish, carry_out = MetadataPublisher._publish, ReplicaFetcher._try
    install = QuorumReplica._install

    async def noted_begin_epoch(self: QuorumReplica, epoch: int) -> None:
        invariants.controls(epoch)
        await begin_epoch(self, epoch)

    def noted_lead(self: ReplicaManager, key: Any, topic: Any, known: Any, partition: Any) -> None:
        name = partition_name((topic.name, key.partition))
        invariants.leads((key.topic_id, key.partition), known.leader_epoch, name)
        lead(self, key, topic, known, partition)

    async def noted_publish(self: MetadataPublisher, delta: Any, image: ClusterImage) -> None:
        invariants.published(image)
        await publish(self, delta, image)

    async def counted_try(self: ReplicaFetcher, *carried: Any) -> None:
        effect = carried[-1]
        if isinstance(effect, Truncate):
            trace.sometimes("a follower truncated its log")
        elif isinstance(effect, Reset):
            trace.sometimes("a follower began its log anew")
        elif isinstance(effect, ReportLoss):
            trace.violation(f"a leader has lost what was committed: {effect.message}")
        await carry_out(self, *carried)

    async def counted_install(self: QuorumReplica, snapshot: Any) -> None:
        trace.sometimes("a snapshot of the metadata was installed")
        await install(self, snapshot)

    with ExitStack() as stack:
        for owner, name, noted in (
            (QuorumReplica, "_begin_epoch", noted_begin_epoch),
            (QuorumReplica, "_install", counted_install),
            (ReplicaManager, "_lead", noted_lead),
            (MetadataPublisher, "_publish", noted_publish),
            (ReplicaFetcher, "_try", counted_try),
        ):
            stack.enter_context(mock.patch.object(owner, name, noted))
        yield
