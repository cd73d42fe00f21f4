"""What callers of a producer give, as bytes: serialized, checked, and in columns.

Whatever is wrong raises here, before it is in a batch with other records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence, Sized
from typing import Any

from millrace._producer.columns import (
    Columns,
    as_bytes,
    bytes_column,
    checked_timestamp_ms,
    checked_timestamps_ms,
    common_record_bytes,
    headers_column,
)
from millrace_protocol.records import Headers

Serializer = Callable[[Any], bytes]

_NO_MILLISECONDS = range(10_000_000, 100_000_000_000)
"""As milliseconds these are of 1970 to 1973; as seconds, or digits of a date, of our time."""

log = logging.getLogger("millrace")


class RecordInput:
    """The serializers of one producer; None: keys or values are bytes already."""

    def __init__(
        self, key_serializer: Serializer | None, value_serializer: Serializer | None
    ) -> None:
        self.serializes = key_serializer is not None or value_serializer is not None
        self._key_serializer = key_serializer
        self._value_serializer = value_serializer
        self._is_told = False

    def key(self, key: Any) -> bytes | None:
        """A key as bytes. Raises `TypeError`, and what the serializer raises."""
        if key is not None and self._key_serializer is not None:
            key = self._key_serializer(key)
        return key if key is None or type(key) is bytes else as_bytes("key", key)

    def value(self, value: Any) -> bytes | None:
        """A value as bytes. Raises `TypeError`, and what the serializer raises."""
        if value is not None and self._value_serializer is not None:
            value = self._value_serializer(value)
        return value if type(value) is bytes else as_bytes("value", value)

    def timestamp_ms(self, timestamp_ms: object) -> int:
        """A timestamp. Raises `TypeError` and `ValueError`."""
        checked = checked_timestamp_ms("timestamp_ms", timestamp_ms)
        if checked in _NO_MILLISECONDS:
            self._warn(checked)
        return checked

    def columns(
        self,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None,
        headers: Sequence[Headers] | None,
        timestamps_ms: Sequence[int] | int | None,
        now_ms: int,
    ) -> Columns:
        """The records of one call; `now_ms` is their time where none is given.

        Raises `TypeError`, `ValueError`, and what a serializer raises.
        """
        for name, column in (
            ("keys", keys),
            ("headers", headers),
            ("timestamps_ms", timestamps_ms),
        ):
            if isinstance(column, Sized) and len(column) != len(values):
                raise ValueError(f"{name}: {len(column)} for {len(values)} values")
        bytes_values = bytes_column("value", values, self._value_serializer)
        checked, header_bytes = (None, None) if headers is None else headers_column(headers)
        record_bytes = None
        if keys is None and (headers is None or header_bytes is not None):
            record_bytes = common_record_bytes(bytes_values, header_bytes or 0)
        given = now_ms if timestamps_ms is None else checked_timestamps_ms(timestamps_ms)
        first = given if isinstance(given, int) else next(iter(given), now_ms)
        if first in _NO_MILLISECONDS:
            self._warn(first)
        return Columns(
            bytes_values,
            None if keys is None else bytes_column("key", keys, self._key_serializer),
            checked,
            given,
            record_bytes,
            header_bytes,
        )

    def _warn(self, timestamp_ms: int) -> None:
        """Tells once of a timestamp that is hardly meant as milliseconds."""
        if not self._is_told:
            self._is_told = True
            log.warning(
                "a timestamp of %d is taken as milliseconds since the epoch, in the early 1970s: "
                "multiply seconds by 1000, and make milliseconds of a date",
                timestamp_ms,
            )
