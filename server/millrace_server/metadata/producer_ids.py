"""Blocks of producer ids, each for one broker: no id is given twice in a cluster."""

from __future__ import annotations

from millrace_protocol.errors import ErrorCode
from millrace_protocol.metadata_records import MetadataRecord, ProducerIdsRecord
from millrace_server.api_error import ApiError
from millrace_server.metadata.broker_registrations import registered_broker
from millrace_server.metadata.image import ClusterImage

PRODUCER_ID_MAX = 2**63 - 1
PRODUCER_ID_BLOCK = 1000
"""Producer ids of one block; a restart wastes at most a block."""


def reserve_producer_ids(
    image: ClusterImage, broker_id: int, *, broker_epoch: int, at_least: int = 0
) -> list[MetadataRecord]:
    """Records that give a broker the next block of producer ids, from `at_least` on.

    Raises `ApiError` if the broker's registration is not in force, or if the ids are used up.
    """
    registered_broker(image, broker_id, broker_epoch)
    first = max(image.next_producer_id, at_least)
    if first > PRODUCER_ID_MAX - PRODUCER_ID_BLOCK:
        raise ApiError(
            ErrorCode.INVALID_REQUEST, f"There are no producer ids from {first} on; they end there"
        )
    return [ProducerIdsRecord(broker_id, broker_epoch, first + PRODUCER_ID_BLOCK)]
