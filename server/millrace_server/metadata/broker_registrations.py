"""Brokers that join the cluster, leave it, and are fenced in between.

    register ──► fenced ──unfence──► active ──begin_shutdown──► shutting down
                   ▲                    │                            │
                   └──────fence─────────┴────────────fence───────────┘

A registration gives a broker its epoch, which is the offset of its record: whatever carries an
older one is of a process that is gone. A broker is unfenced when it has read the metadata up to its
registration, and fenced when its session is over (`broker_sessions`).

Sources: KIP-500, KIP-631, KIP-841, KIP-966.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import (
    BrokerRegistrationChangeRecord,
    ClusterRecord,
    MetadataRecord,
    RegisterBrokerRecord,
    RegisteredListener,
    UnregisterBrokerRecord,
)
from millrace_server.api_error import ApiError
from millrace_server.metadata.delta import FEATURE_LEVEL, preview
from millrace_server.metadata.image import BrokerRegistration, ClusterImage
from millrace_server.metadata.leader_election import (
    on_broker_active,
    on_broker_inactive,
    on_broker_registered,
    on_broker_unregistered,
)

UNCLEAN_SHUTDOWN = -1
"""The previous broker epoch of a broker that was not shut down cleanly, or that is new."""


@dataclass(frozen=True, slots=True)
class BrokerStart:
    """What a broker says of itself when it starts.

    `previous_broker_epoch` is the epoch in which the broker was shut down cleanly.
    """

    broker_id: int
    incarnation_id: uuid.UUID
    listeners: tuple[RegisteredListener, ...]
    rack: str | None
    directory_ids: tuple[uuid.UUID, ...]
    broker_host: str = ""
    broker_port: int = 0
    previous_broker_epoch: int = UNCLEAN_SHUTDOWN


def registered_broker(image: ClusterImage, broker_id: int, broker_epoch: int) -> BrokerRegistration:
    """The registration that a broker acts under. Raises `ApiError` if it is not in force."""
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker {broker_id} is not registered; register first",
        )
    if broker.epoch != broker_epoch:
        raise ApiError(
            ErrorCode.STALE_BROKER_EPOCH,
            f"Broker {broker_id} is registered with epoch {broker.epoch}, not {broker_epoch}: "
            "another process has its id, or it has restarted",
        )
    return broker


def register_broker(
    image: ClusterImage,
    defaults: Mapping[str, str],
    start: BrokerStart,
    *,
    cluster_id: uuid.UUID,
    has_session: bool,
) -> list[MetadataRecord]:
    """Records that register a broker which starts, fenced. Raises `ApiError`.

    The first broker makes the cluster, with `cluster_id`. `has_session`: the session of the last
    registration of this broker id is alive. A request that comes twice changes nothing.
    """
    known = image.brokers.get(start.broker_id)
    if known is not None and known.incarnation_id == start.incarnation_id:
        return []
    if known is not None and has_session and known.is_active:
        raise ApiError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Broker {start.broker_id} is in service as another process; give this one another "
            "node_id, or start it again when the session of the other is over",
        )
    _check_start(image, start)
    records = _registration(image, start, cluster_id)
    after = preview(image, records)
    is_clean = known is not None and known.epoch == start.previous_broker_epoch
    registered = after.brokers[start.broker_id]
    return [*records, *on_broker_registered(after, defaults, registered, is_clean=is_clean)]


def register_single_broker(
    image: ClusterImage, start: BrokerStart, *, cluster_id: uuid.UUID
) -> list[MetadataRecord]:
    """Records that register the only broker of a cluster, and unfence it. Raises `ApiError`.

    It holds the metadata log, so it has caught up, and no replica of another broker could lead in
    its place: its partitions stay as they are.
    """
    check_node_id(image, start.broker_id)
    records = _registration(image, start, cluster_id)
    epoch = preview(image, records).brokers[start.broker_id].epoch
    return [*records, BrokerRegistrationChangeRecord(start.broker_id, epoch, is_fenced=False)]


def check_node_id(image: ClusterImage, node_id: int) -> None:
    """Raises `ApiError` if the data directory of a cluster of one belongs to another broker."""
    if image.brokers and node_id not in image.brokers:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"The data directory belongs to broker {known} and node_id is {node_id}; set "
            "node_id to that of the data directory, or use another data directory",
        )


def unfence_broker(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records for a broker that has caught up: it may lead again. Not for one that shuts down."""
    broker = image.brokers[broker_id]
    if not broker.is_fenced or broker.in_controlled_shutdown:
        return []
    record = BrokerRegistrationChangeRecord(broker_id, broker.epoch, is_fenced=False)
    return [record, *on_broker_active(preview(image, [record]), defaults, broker_id)]


def fence_broker(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records for a broker whose session is over, or that stops: others lead in its place."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.is_fenced:
        return []
    return _deactivate(
        image,
        defaults,
        BrokerRegistrationChangeRecord(
            broker_id, broker.epoch, True, broker.in_controlled_shutdown
        ),
    )


def begin_shutdown(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records for a broker that wants to stop: its leaders move first, and it serves on."""
    broker = image.brokers[broker_id]
    if broker.is_fenced or broker.in_controlled_shutdown:
        return []
    return _deactivate(
        image,
        defaults,
        BrokerRegistrationChangeRecord(broker_id, broker.epoch, False, True),
    )


def unregister_broker(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> list[MetadataRecord]:
    """Records that take a broker out of the cluster for good. Raises `ApiError`.

    It is stopped, and no partition depends on its replica. Partitions that have one keep it in
    their lists until they are reassigned.
    """
    broker = image.brokers.get(broker_id)
    if broker is None:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"There is no broker {broker_id}; the cluster has "
            f"{', '.join(map(str, sorted(image.brokers))) or 'none'}",
        )
    if not broker.is_fenced:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is in service; stop it first, then retire it",
        )
    if any(voter.broker_id == broker_id for voter in image.voters):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is a voter of the metadata quorum; remove it from that first",
        )
    _check_not_last(image, broker_id)
    record = UnregisterBrokerRecord(broker_id, broker.epoch)
    return [record, *on_broker_unregistered(preview(image, [record]), defaults, broker_id)]


def _registration(
    image: ClusterImage, start: BrokerStart, cluster_id: uuid.UUID
) -> list[MetadataRecord]:
    first: list[MetadataRecord] = []
    if image.cluster_id is None:
        first.append(ClusterRecord(cluster_id, FEATURE_LEVEL))
    return [
        *first,
        RegisterBrokerRecord(
            start.broker_id,
            image.end_offset + len(first),
            start.incarnation_id,
            start.listeners[0].host,
            start.listeners[0].port,
            start.rack,
            start.directory_ids,
            start.broker_host,
            start.broker_port,
            start.listeners,
        ),
    ]


def _check_start(image: ClusterImage, start: BrokerStart) -> None:
    if start.broker_id < 0 or not start.directory_ids or not start.listeners:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {start.broker_id} registers with {len(start.directory_ids)} data directories "
            f"and {len(start.listeners)} listeners; a broker has an id from 0 on, and one of each "
            "at least",
        )
    for broker in image.brokers.values():
        is_other = broker.broker_id != start.broker_id
        if is_other and not set(start.directory_ids).isdisjoint(broker.directory_ids):
            raise ApiError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION,
                f"The data directory of broker {start.broker_id} has the identity of that of "
                f"broker {broker.broker_id}, so it is a copy; start broker {start.broker_id} with "
                "its own directory, or with an empty one",
            )


def _deactivate(
    image: ClusterImage, defaults: Mapping[str, str], record: BrokerRegistrationChangeRecord
) -> list[MetadataRecord]:
    after = preview(image, [record])
    return [record, *on_broker_inactive(after, defaults, record.broker_id)]


def _check_not_last(image: ClusterImage, broker_id: int) -> None:
    """Raises `ApiError` if no other replica of some partition has its records for sure."""
    last = [
        f"{topic.name}-{number}"
        for topic in image.topics.values()
        for number, partition in enumerate(topic.partitions)
        if broker_id in (*partition.isr, *partition.elr, *partition.last_known_elr)
        and not {*partition.isr, *partition.elr} - {broker_id}
    ]
    if last:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} has the last replica of {len(last)} partition(s), such as "
            f"{last[0]}; start it and move them to other brokers first, or delete the topics",
        )
