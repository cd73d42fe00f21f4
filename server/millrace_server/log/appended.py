"""Where a batch has been appended."""

from __future__ import annotations

from typing import NamedTuple


class Appended(NamedTuple):
    """Where a batch is: `base_offset` to `last_offset`, inclusive.

    `log_append_time_ms` is -1 unless the broker's clock set the timestamp. A `duplicate` was
    there before; it is acknowledged like any other, once `last_offset` is durable.
    """

    base_offset: int
    last_offset: int
    log_append_time_ms: int
    duplicate: bool
