"""Every bound on the cost of a peer, in one place.

Owns the numbers and the relations between them; who enforces a limit is named beside it. Knows
no dialect.
"""

from __future__ import annotations

from dataclasses import dataclass

from millrace_protocol.framing import (
    FRAME_BYTES_MAX,
    FRAME_BYTES_MAX_BEFORE_HELLO,
    FRAME_BYTES_MOST,
)
from millrace_server.setting import setting

READ_BYTES = 256 << 10
"""Size of the buffer that all connections of a server share for reading."""
DECODED_BYTES_MAX = 16 << 20
"""Records of one batch, decompressed, that compaction reads: more than a client puts into a batch,
and less than a bomb. Clients, which have only themselves to stop, read up to 128 MiB."""
DECODED_RECORDS_MAX = 100_000
"""The same as a count, for a look into a batch: it takes some 30 ms."""
LOOKED_AT_BYTES_MAX = 4 << 20
"""Records of one batch, decompressed, that are looked at for a question about time and for text:
four times the size of a batch of clients before compression. They are copied once while no request
else is answered, which takes 1 ms."""
FRAME_BYTES_MIN = 8
"""Smallest `length` of a binary frame: api, version and correlation id of any dialect."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Limits of one server. Sizes are in bytes, times in milliseconds.

    Raises `ValueError` when the limits contradict each other.
    """

    frame_bytes_max: int = setting(
        FRAME_BYTES_MAX,
        "Largest frame length: one frame is held whole in memory before it is looked at.",
    )

    frame_bytes_max_before_hello: int = setting(
        FRAME_BYTES_MAX_BEFORE_HELLO,
        "Largest frame length before Hello: a peer that has not greeted gets little memory.",
    )

    line_bytes_max: int = setting(
        64 << 10,
        "Longest line of text: each read looks through the unfinished line from its start.",
    )

    first_frame_timeout_ms: int = setting(
        5_000, "From connect to the first whole request: a silent peer holds a descriptor."
    )

    authentication_timeout_ms: int = setting(
        10_000,
        "From connect to the end of the authentication, on listeners with SASL: a peer that goes "
        "on with its first requests holds a descriptor.",
    )

    frame_timeout_ms: int = setting(
        60_000,
        "From the first byte of a request to its last: an unfinished frame holds memory, and one "
        "byte now and then would otherwise count as activity.",
    )

    scarce_timeout_ms: int = setting(
        3_000,
        "While other requests wait for memory: a large one that holds some is measured for so "
        "long, and must arrive at `scarce_bytes_per_s`, or its connection is closed. A peer that "
        "announces much and sends nothing would otherwise hold the memory for `frame_timeout_ms`.",
    )

    scarce_bytes_per_s: int = setting(
        128 << 10,
        "Slowest pace of such a request: a mebibit a second.",
    )

    connections_max_idle_ms: int = setting(
        600_000,
        "A connection is closed after so long with nothing received, sent or owed: its peer is "
        "probably gone.",
    )

    output_stalled_ms: int = setting(
        30_000,
        "A connection is closed when its peer takes no byte for so long of the answers that wait "
        "for it: they hold memory and files.",
    )

    linger_ms: int = setting(
        1_000,
        "From the broker's last byte to the peer's: closing on unread input would send a reset, "
        "which destroys a refusal that the peer has not read yet.",
    )

    inflight_requests_max: int = setting(
        64, "Requests of one connection that are not answered yet: at the limit it is not read."
    )

    buffered_bytes_max: int = setting(
        32 << 20,
        "Requests and answers that one connection holds in memory: at the limit it is not read.",
    )

    request_memory_bytes: int = setting(
        192 << 20,
        "Requests and answers that all connections together hold in memory: at the limit large "
        "frames wait for their turn, but for one that has begun and may pass it, so that they do "
        "not all wait for each other.",
    )

    connections_max: int = setting(
        12_000,
        "Connections at a time. Each holds a descriptor, and a second one while its peer reads "
        "slowly; a common hard limit of open files is 20,000.",
        reloads=True,
    )

    connections_refused_max: int = setting(
        256,
        "Connections over the limit that get an error response; more are closed without one.",
        reloads=True,
    )

    def __post_init__(self) -> None:
        at_most = (
            ("frame_bytes_max_before_hello", "frame_bytes_max"),
            ("frame_bytes_max", "buffered_bytes_max"),
            ("buffered_bytes_max", "request_memory_bytes"),
        )
        for small, large in at_most:
            if getattr(self, small) > getattr(self, large):
                raise ValueError(
                    f"{small} is {getattr(self, small)}; it must be at most {large}, "
                    f"{getattr(self, large)}"
                )
        if self.frame_bytes_max > FRAME_BYTES_MOST:
            raise ValueError(
                f"frame_bytes_max is {self.frame_bytes_max}; it must be at most "
                f"{FRAME_BYTES_MOST}, or a frame could be taken for text"
            )
        for name in self.__dataclass_fields__:
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; it must be at least 1")
        if self.line_bytes_max > READ_BYTES // 2:
            raise ValueError(
                f"line_bytes_max is {self.line_bytes_max}; it must be at most {READ_BYTES // 2}"
            )
