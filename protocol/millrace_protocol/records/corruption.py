"""The faults of record batches: their exception and their enumeration.

Recovery, the broker and the clients use them to tell a torn tail, a flipped bit and a false header
apart. Knows nothing of layouts.
"""

import enum


class Fault(enum.StrEnum):
    """The kind of a fault, which decides how the reader goes on."""

    TRUNCATED = "truncated"
    """The buffer ends before the batch does: a torn tail, or bytes still to arrive."""
    LENGTH = "length"
    """The batch length is impossible, or bytes follow the only batch."""
    MAGIC = "magic"
    """Not a magic-2 batch."""
    CRC = "crc"
    """The CRC-32C over the bytes from the attributes on does not match."""
    CODEC = "codec"
    """A compression codec that does not exist."""
    FIELD = "field"
    """The bytes are as they were sent, but a header field may not have this value."""
    PAYLOAD = "payload"
    """The header is sound; the records behind it are not."""


class CorruptBatch(ValueError):
    """A batch that may not be stored, replicated or handed to an application.

    `position` is the byte in the buffer given to the function that raised: the start of the
    batch, or, for a fault in the payload of an uncompressed batch, the start of the record at
    fault. `reason` is the `Fault`.
    """

    def __init__(self, message: str, position: int, reason: Fault) -> None:
        super().__init__(message, position, reason)
        self.message = message
        self.position = position
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.message} [{self.reason}, byte {self.position}]"


class BatchTooLarge(ValueError):
    """A sound batch that is larger than the topic or the broker allows."""

    def __init__(self, size_bytes: int, max_bytes: int) -> None:
        super().__init__(size_bytes, max_bytes)
        self.size_bytes = size_bytes
        self.max_bytes = max_bytes

    def __str__(self) -> str:
        return (
            f"the batch is {self.size_bytes} bytes and the limit is {self.max_bytes}: "
            "send fewer or smaller records per batch, or raise the limit"
        )
