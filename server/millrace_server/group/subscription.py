"""The topics that a member of a consumer group says it reads.

A coordinator does not look into what members tell each other, with this one exception: which
offsets may expire, or be deleted, while a group lives depends on the topics it reads.
"""

from __future__ import annotations

from millrace_protocol.consumer_protocol import PROTOCOL_TYPE, decode_subscription
from millrace_protocol.errors import WireError

CONSUMER_PROTOCOL_TYPE = PROTOCOL_TYPE


def subscribed_topics(metadata: bytes) -> frozenset[str] | None:
    """The topics, or None when the bytes are not a subscription."""
    try:
        return frozenset(decode_subscription(metadata).topics)
    except WireError:
        return None
