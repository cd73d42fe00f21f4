"""Records of the metadata log that were not written as they stand are refused, by a typed error."""

from __future__ import annotations

import pytest

from millrace_server.metadata.records import UnreadableMetadata, decode_record


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"[]",
        b"[" * 2_000,
        b'{"type": "TopicRenamed", "name": "t"}',
        b'{"type": "TopicDeleted"}',
        b'{"type": "TopicDeleted", "topic_id": 7}',
        b'{"type": "ClusterCreated", "cluster_id": null}',
        b'{"type": "ProducerIdsReserved", "next_producer_id": NaN}',
        b'{"type": "ProducerIdsReserved", "next_producer_id": true}',
        b'{"type": "TopicConfigChanged", "topic_id": "i", "configs": ["retention.ms"]}',
        b'{"type": "TopicConfigChanged", "topic_id": "i", "configs": {"retention.ms": 1}}',
    ],
)
def test_a_record_with_a_missing_or_wrong_field_is_unreadable(value: bytes) -> None:
    with pytest.raises(UnreadableMetadata, match="is not understood"):
        decode_record(value)
