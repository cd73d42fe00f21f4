"""Retirement: a broker leaves the cluster for good.

    has replicas    they are reassigned to the other brokers; the request is repeated
    has none        it is unregistered, once it is stopped

A new topic may have got a replica on the broker meanwhile: the next request moves that too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import MetadataRecord
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_registrations import unregister_broker
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.reassignments import plan_retirement, reassign


def replica_count(image: ClusterImage, broker_id: int) -> int:
    """The replicas that a broker has, those that are being removed included."""
    return sum(
        broker_id in partition.replicas
        for topic in image.topics.values()
        for partition in topic.partitions
    )


def retire_broker(
    image: ClusterImage, defaults: Mapping[str, str], broker_id: int
) -> Sequence[MetadataRecord]:
    """Records of the next step; none while all replicas are on their way. Raises `ApiError`."""
    _check_retirable(image, broker_id)
    if replica_count(image, broker_id):
        plan = plan_retirement(image, broker_id)
        decided = reassign(image, defaults, plan, may_replace=True)
        for error in decided.refused:
            if error is not None:
                raise error
        return decided.records
    if not image.brokers[broker_id].is_fenced:
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} has no replicas and is in service; stop it, and retire it again "
            "to unregister it",
        )
    return unregister_broker(image, defaults, broker_id)


def _check_retirable(image: ClusterImage, broker_id: int) -> None:
    known = ", ".join(map(str, sorted(image.brokers)))
    if broker_id not in image.brokers:
        raise ApiError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"There is no broker {broker_id}; the cluster has {known or 'none'}",
        )
    if not any(b.is_active for b in image.brokers.values() if b.broker_id != broker_id):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"No other broker than {broker_id} is in service, and the last one cannot be retired; "
            "start another broker first",
        )
    if any(voter.broker_id == broker_id for voter in image.voters):
        raise ApiError(
            ErrorCode.INVALID_REQUEST,
            f"Broker {broker_id} is a voter of the metadata quorum; remove it from that first",
        )
