"""Tables of documents with content from the broker: limits and topic settings.

The protocol package does not know the server, so they are made here.
"""

from __future__ import annotations

from collections.abc import Callable

from millrace_protocol.framing import (
    CLIENT_ID_BYTES_MAX,
    FRAME_BYTES_MAX,
    FRAME_BYTES_MAX_BEFORE_HELLO,
)
from millrace_protocol.messages.split_ranges import PIECES_MAX
from millrace_protocol.primitives import ARRAY_COUNT_MAX, STRING_BYTES_MAX
from millrace_protocol.records.header import RECORD_COUNT_MAX
from millrace_protocol.schema import Message, Request
from millrace_server.config import BrokerConfig
from millrace_server.dialects.text.commands import FETCH_COUNT_MAX
from millrace_server.dialects.text.lines import ANSWER_CHARACTERS
from millrace_server.group_config import GROUP_ID_LENGTH_MAX, NAME_LENGTH_MAX, PROTOCOLS_MAX
from millrace_server.limits import DECODED_BYTES_MAX, DECODED_RECORDS_MAX, Limits
from millrace_server.log.producers import BATCHES_KEPT, PRODUCERS_MAX
from millrace_server.partitions.partition import PRODUCER_SILENT_MS_MAX
from millrace_server.partitions.purgatory import WAIT_MS_MAX
from millrace_server.services.producer_ids import EPOCHS_KEPT
from millrace_server.topic_config import TOPIC_CONFIG_KEYS, TOPIC_NAME_SIZE_MAX, ConfigKey

MARKER = "broker"


def generators() -> dict[str, Callable[[], str]]:
    """The tables by their names in the document."""
    return {"limits": _limits, "topic-configs": _topic_configs}


def _limits() -> str:
    rows = ["| limit | default | beyond it |", "|---|---|---|"]
    rows += [f"| {' | '.join(row)} |" for row in (*_of_frames(), *_of_records(), *_of_groups())]
    return "\n".join(rows)


def _of_frames() -> tuple[tuple[str, str, str], ...]:
    limits = Limits()
    return (
        (
            "connections",
            _number(limits.connections_max),
            "refusal BROKER_STOPPING to the first request; closes",
        ),
        (
            "`length` of a frame before Hello",
            _bytes(FRAME_BYTES_MAX_BEFORE_HELLO),
            "W-6.1",
        ),
        ("`length` of a frame, `frame_bytes_max`", _bytes(FRAME_BYTES_MAX), "W-6.2"),
        ("client id", _bytes(CLIENT_ID_BYTES_MAX), "closes"),
        ("a string", _bytes(STRING_BYTES_MAX), "cannot be written"),
        ("elements of one array of a request", _number(Request.array_max), "42"),
        ("elements of all arrays of a request", _number(Request.elements_max), "42"),
        ("elements of one array of a response", _number(ARRAY_COUNT_MAX), "a client may refuse"),
        (
            "elements of all arrays of a response",
            _number(Message.elements_max),
            "a client may refuse",
        ),
        (
            "`max_wait_ms` of a fetch, `timeout_ms` of a produce",
            _ms(WAIT_MS_MAX),
            "counts as this much",
        ),
        ("pieces of a SplitRanges response", _number(PIECES_MAX), "W-4.23.2"),
        ("a line of text", _bytes(limits.line_bytes_max), "W-8.1"),
        ("COUNT of the text command FETCH", _number(FETCH_COUNT_MAX), "`ERR INVALID_REQUEST`"),
        ("an answer in text", _bytes(ANSWER_CHARACTERS), "ends with the line that reaches it"),
    )


def _of_records() -> tuple[tuple[str, str, str], ...]:
    return (
        (
            "partitions of all topics together, the broker's own included",
            _number(BrokerConfig().partitions_max),
            "37",
        ),
        ("topic name", f"{TOPIC_NAME_SIZE_MAX} characters", "17"),
        ("`record_count` of a batch", _number(RECORD_COUNT_MAX), "87"),
        (
            "records of a batch in a compacted topic, or without a `max_timestamp`",
            _number(DECODED_RECORDS_MAX),
            "87",
        ),
        (
            "decompressed records of a batch that is checked for keys, compressed anew, or "
            "without a `max_timestamp`",
            _bytes(DECODED_BYTES_MAX),
            "87",
        ),
        (
            "batches of one producer that a partition compares",
            _number(BATCHES_KEPT),
            "an older one is 45",
        ),
        (
            "producers that a partition remembers",
            _number(PRODUCERS_MAX),
            "the one silent for longest is forgotten",
        ),
        (
            "silence of a producer in a partition",
            _ms(PRODUCER_SILENT_MS_MAX),
            "the partition forgets it",
        ),
        (
            "producer ids with an epoch above 0 that the broker remembers",
            _number(EPOCHS_KEPT),
            "the oldest is replaced when it asks again, W-4.6",
        ),
    )


def _of_groups() -> tuple[tuple[str, str, str], ...]:
    config = BrokerConfig()
    group = config.group
    return (
        ("partitions of `__consumer_offsets`", _number(config.offsets_topic_partitions), ""),
        ("group name", f"{GROUP_ID_LENGTH_MAX} characters", "24"),
        (
            "member id, instance id, client id, protocol name",
            f"{_number(NAME_LENGTH_MAX)} characters",
            "42",
        ),
        (
            "`session_timeout_ms`",
            f"{_number(group.session_timeout_min_ms)} to {_ms(group.session_timeout_max_ms)}",
            "26",
        ),
        (
            "delay of a group's first generation",
            _ms(group.initial_rebalance_delay_ms),
            "the generation begins",
        ),
        ("protocols of one member", _number(PROTOCOLS_MAX), "23"),
        ("members of a group", _number(group.group_size_max), "81"),
        ("metadata of all members, and the assignment", _bytes(group.group_metadata_bytes_max), ""),
        ("`metadata` beside an offset", _bytes(group.offset_metadata_bytes_max), "12"),
        (
            "offsets of a group without members",
            _ms(group.offsets_retention_ms),
            "the broker forgets them",
        ),
    )


def _number(value: int) -> str:
    return f"{value:,}"


def _bytes(value: int) -> str:
    return f"{value:,} bytes"


def _ms(value: int) -> str:
    return f"{value:,} ms"


def _topic_configs() -> str:
    rows = ["| setting | values | default | meaning |", "|---|---|---|---|"]
    rows += [
        f"| {key.name} | {_values(key)} | {key.default} | {key.doc} |"
        for key in TOPIC_CONFIG_KEYS.values()
    ]
    return "\n".join(rows)


def _values(key: ConfigKey) -> str:
    if key.words:
        return ("several of " if key.is_list else "") + ", ".join(key.words)
    if key.is_share:
        return "0 to 1"
    names = {2**31 - 1: "2^31-1", 2**63 - 1: "2^63-1"}
    return f"{key.minimum} to {names.get(key.maximum, key.maximum)}"
