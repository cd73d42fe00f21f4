"""ReplicaRead: a broker whose copy of committed records is damaged reads another replica's."""

from __future__ import annotations

import uuid

from millrace_protocol.primitives import INT16, INT32, INT64, NULLABLE_STRING, RECORDS, UUID
from millrace_protocol.schema import Message, Request, message, wire


@message
class ReplicaReadRequest(Request):
    """Asks for committed records of any replica, leader or follower."""

    topic_id: uuid.UUID = wire(UUID, "identity of the topic")
    partition: int = wire(INT32, "partition number")
    offset: int = wire(INT64, "offset of the first record")
    max_bytes: int = wire(INT32, "most bytes of records in the response", unit="bytes")


@message
class ReplicaReadResponse(Message):
    """Batches as they are on the disk."""

    error_code: int = wire(INT16, "error of the request (W-7)")
    error_message: str | None = wire(NULLABLE_STRING, "the reason, for a person")
    records: bytes | memoryview = wire(
        RECORDS,
        "whole record batches, the first holds offset; one at least unless it is an error",
        unit="bytes",
    )
