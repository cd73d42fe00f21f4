"""The names of the options of a read, and the advice for unknown names.

Owns the spelling, which is Kafka's where Kafka has the option, and which kind of read an option
belongs to. Advises what to use for options of Spark's Kafka source that have no meaning here.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping

from millrace_spark.errors import OptionError
from millrace_spark.options.credentials import NAMES as CREDENTIALS

BOTH = (
    "millrace.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "failOnDataLoss",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxPartitionBytes",
    "includeHeaders",
    "valueFormat",
    "recordPrefix",
    "deadlineMs",
    *CREDENTIALS,
)
BATCH_ONLY = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp", "pushFilters")
STREAM_ONLY = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "commitGroup",
)
NAMES = (*BOTH, *BATCH_ONLY, *STREAM_ONLY)
_ALL = {name.lower(): name for name in NAMES}
_NO_GROUP = (
    "a read joins no group, so that every query reads all of the data; remove it"
    " (a stream shows its progress to group tools with commitGroup)"
)
_ONE_DEADLINE = "is not needed: retries end at one deadline; set deadlineMs instead"
_SECURITY = {
    "kafka.security.": "TLS is asked for with tls:// before the addresses of millrace.servers, "
    "and a login with username and password; remove it",
    "kafka.ssl.": "use tlsCa, tlsCertificate and tlsKey, which name PEM files",
    "kafka.sasl.": "use username and password, or token, with saslMechanism",
}
_ELSEWHERE = {
    "kafka.bootstrap.servers": "names Kafka's brokers; name Millrace's with millrace.servers",
    "kafka.auto.offset.reset": "is a setting of a consumer group; use startingOffsets",
    "kafka.enable.auto.commit": "has no effect: Spark's checkpoint has the offsets; "
    "remove it (a stream shows its progress to group tools with commitGroup)",
    "kafka.isolation.level": "there are no transactions yet, so every record is committed; "
    "remove it",
    "kafka.group.id": _NO_GROUP,
    "groupidprefix": _NO_GROUP,
    "kafkaconsumer.polltimeoutms": _ONE_DEADLINE,
    "fetchoffset.numretries": _ONE_DEADLINE,
    "fetchoffset.retryintervalms": _ONE_DEADLINE,
    "path": "there are no paths; name the topic with subscribe, and call load() bare",
    "topic": "is an option of writes; a read names its topics with subscribe",
    "compression": "is an option of writes; a read knows the compression of every batch",
}


def canonical_options(options: Mapping[str, str], *, is_stream: bool) -> dict[str, str]:
    """The options by their canonical names; the user gives names in any case.

    Raises `OptionError` for a name that is not an option of such a read.
    """
    given = {}
    for name, text in options.items():
        spelling = _ALL.get(name.lower())
        if spelling is None:
            raise OptionError(name, _advice(name.lower()))
        if is_stream and spelling in BATCH_ONLY:
            raise OptionError(spelling, "is for batch reads; a stream has no end, so remove it")
        if not is_stream and spelling in STREAM_ONLY:
            raise OptionError(spelling, "is for streams; a batch reads to its end, so remove it")
        given[spelling] = text
    return given


def kafka_setting_advice(name: str) -> str:
    """The advice for a `kafka.` setting without an equivalent, in a read or a write."""
    for prefix, advice in _SECURITY.items():
        if name.startswith(prefix):
            return advice
    if name.endswith((".serializer", ".deserializer")):
        return "keys and values are bytes; remove it, and convert the columns with cast"
    return "is a setting of Kafka's client, which is not used here; remove it"


def _advice(name: str) -> str:
    if name in _ELSEWHERE:
        return _ELSEWHERE[name]
    if name.startswith("kafka."):
        return kafka_setting_advice(name)
    close = difflib.get_close_matches(name, _ALL, n=1)
    if close:
        return f"no such option; did you mean {_ALL[close[0]]}?"
    return f"no such option; there are {', '.join(_ALL.values())}"
