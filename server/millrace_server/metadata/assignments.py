"""Replicas that a request places itself: which are allowed."""

from __future__ import annotations

from collections.abc import Sequence

from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.metadata.image import ClusterImage

Assignments = Sequence[tuple[int, ...]]
"""The brokers of each partition, the preferred leader first; empty: the controller places."""


def check_replicas(image: ClusterImage, replicas: Sequence[int]) -> None:
    """Raises `ApiError` unless a partition can have these replicas."""
    if not replicas or len(set(replicas)) != len(replicas):
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The replicas are {list(replicas)}; name one broker at least, and each once",
        )
    unknown = [r for r in replicas if r not in image.brokers]
    if unknown:
        known = ", ".join(map(str, sorted(image.brokers)))
        raise ApiError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Broker {unknown[0]} is not there; the cluster has the brokers {known}",
        )


def check_assignments(image: ClusterImage, assignments: Assignments, *, factor: int) -> None:
    """Raises `ApiError` unless new partitions can have these replicas, `factor` of each."""
    for number, replicas in enumerate(assignments):
        if not replicas:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The assignment of new partition {number} names no broker; each of the "
                f"{len(assignments)} new partitions needs one, numbered from 0 without a gap",
            )
        check_replicas(image, replicas)
        if len(replicas) != factor:
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The replicas are {list(replicas)}; each partition of the topic has {factor}",
            )
        if not any(image.brokers[each].is_active for each in replicas):
            raise ApiError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"None of the brokers {list(replicas)} is in service; one has to lead",
            )
