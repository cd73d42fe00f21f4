"""The options of a write: names, defaults and checks.

Owns validation, so that a wrong option fails before any row is sent, with a message that names the
option. Asks no broker: the first row of a topic finds out whether the topic exists. Names follow
Spark's Kafka sink. As there, `includeHeaders` is accepted and has no effect.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from millrace.config import Compression
from millrace_spark.errors import OptionError
from millrace_spark.options.credentials import NAMES as CREDENTIALS
from millrace_spark.options.credentials import NO_CREDENTIALS, Credentials, parse_credentials
from millrace_spark.options.option_names import NAMES as READ_NAMES
from millrace_spark.options.option_names import kafka_setting_advice
from millrace_spark.options.option_parsing import parse_brokers, parse_count, parse_flag, parse_word
from millrace_spark.options.read_options import DEADLINE_MS_MAX, DEADLINE_MS_MIN

NAMES = ("millrace.servers", "topic", "includeHeaders", "compression", "deadlineMs", *CREDENTIALS)
STREAM_ONLY = ("checkpointLocation", "queryName")
"""Spark's own options of a stream, which Spark passes to the data source."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_READ_ONLY = {name.lower() for name in READ_NAMES} - {name.lower() for name in NAMES}
_ADVICE = {
    "kafka.bootstrap.servers": "names Kafka's brokers; name Millrace's with millrace.servers",
    "kafka.acks": "every row is written with acks=all; remove it",
    "kafka.partitioner.class": "a row goes where every Kafka client puts its key, or where the "
    "column partition says; remove it",
    "kafka.enable.idempotence": "every write is idempotent; remove it",
    "kafka.compression.type": "use the option compression",
    "kafka.delivery.timeout.ms": "use the option deadlineMs",
    "path": 'there are no paths; name the topic with .option("topic", ...) and call save() bare',
    "checkpointlocation": "is for streams; a batch write has no checkpoint, so remove it",
    "queryname": "is for streams; remove it",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteOptions:
    """The checked options of a write; made by `parse_write_options`."""

    servers: str
    """`host:port`, or several with commas between."""
    topic: str | None = None
    """The topic of all rows, instead of their column `topic`. None: the column names it."""
    compression: Compression = "none"
    deadline_ms: int = 30_000
    """Longest wait for a connection, and for the ack of a row with all retries."""
    credentials: Credentials = NO_CREDENTIALS


def parse_write_options(options: Mapping[str, str], *, is_stream: bool) -> WriteOptions:
    """The options of one write, with names in any case. Raises `OptionError`.

    >>> parse_write_options(
    ...     {"millrace.servers": "localhost", "TOPIC": "clicks"}, is_stream=False
    ... ).topic
    'clicks'
    """
    names = (*NAMES, *STREAM_ONLY) if is_stream else NAMES
    spellings = {name.lower(): name for name in names}
    given: dict[str, str] = {}
    for name, text in options.items():
        spelling = spellings.get(name.lower())
        if spelling is None:
            raise OptionError(name, _advice(name.lower(), spellings))
        given[spelling] = text
    if "includeHeaders" in given:
        parse_flag("includeHeaders", given["includeHeaders"])
    return WriteOptions(
        servers=parse_brokers("millrace.servers", given.get("millrace.servers")),
        topic=_topic(given),
        compression=cast(
            Compression, parse_word("compression", given.get("compression", "none"), CODECS)
        ),
        deadline_ms=parse_count(
            "deadlineMs",
            given.get("deadlineMs", "30000"),
            minimum=DEADLINE_MS_MIN,
            maximum=DEADLINE_MS_MAX,
        ),
        credentials=parse_credentials(given),
    )


def _topic(given: Mapping[str, str]) -> str | None:
    if "topic" not in given:
        return None
    topic = given["topic"].strip()
    if not topic:
        raise OptionError("topic", "is empty; name a topic, or remove it and add a column topic")
    return topic


def _advice(name: str, spellings: Mapping[str, str]) -> str:
    if name in _ADVICE:
        return _ADVICE[name]
    if name in _READ_ONLY:
        return "is an option of reads; remove it (a write names its topic with topic)"
    if name.startswith("kafka."):
        return kafka_setting_advice(name)
    close = difflib.get_close_matches(name, spellings, n=1)
    if close:
        return f"no such option; did you mean {spellings[close[0]]}?"
    return f"no such option; there are {', '.join(NAMES)}"
