"""Reading of the metadata log's records, and the error of one that this broker cannot follow.

The records are `millrace_protocol.metadata_records`, so that `millrace dissect` reads them too.
"""

from __future__ import annotations

from millrace_protocol.errors import WireError
from millrace_protocol.metadata_records import (
    MetadataRecord,
    NewerMetadata,
    decode_metadata_record,
)


class UnreadableMetadata(Exception):
    """The metadata cannot be understood; the broker must not start."""


def decode_record(value: bytes | None) -> MetadataRecord:
    """A record from its value. Raises `UnreadableMetadata`."""
    try:
        return decode_metadata_record(value or b"")
    except NewerMetadata as error:
        raise UnreadableMetadata(
            f"{error.reason}: this data directory was written by a newer millrace; start that one, "
            "or use another data directory"
        ) from error
    except WireError as error:
        raise UnreadableMetadata(f"a metadata record is malformed: {error}") from error
