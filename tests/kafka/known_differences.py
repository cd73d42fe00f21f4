"""Where millrace answers another way than Apache Kafka, and why: the list in `docs/kafka.md`.

Owns which of the differences that `tests.kafka.beside` finds are of a kind that is known.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.apis import KafkaApi, KafkaApiKey
from millrace_protocol.kafka.metadata import NO_ID
from millrace_protocol.schema import Message

CLOSED = "closed"
SILENT = "nothing within two seconds"
UNKNOWN_SERVER_ERROR = -1
_ENCODING = ("UTF-8", "boolean is", "has a length of -", "array of -", "tagged fields")
_BROKER = 4
_WITH_TIMEOUT = (
    KafkaApiKey.ELECT_LEADERS,
    KafkaApiKey.ALTER_PARTITION_REASSIGNMENTS,
    KafkaApiKey.CREATE_PARTITIONS,
    KafkaApiKey.CREATE_TOPICS,
    KafkaApiKey.DELETE_TOPICS,
)
_OF_EMPTY_GROUPS = (
    KafkaApiKey.DELETE_GROUPS,
    KafkaApiKey.DESCRIBE_GROUPS,
    KafkaApiKey.OFFSET_DELETE,
)
_OTHER_ORDER: dict[int, set[int]] = {
    KafkaApiKey.PRODUCE: {ErrorCode.INVALID_RECORD, ErrorCode.INVALID_REQUIRED_ACKS},
    KafkaApiKey.CREATE_PARTITIONS: {
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
    },
    KafkaApiKey.CREATE_TOPICS: {
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICATION_FACTOR,
        ErrorCode.TOPIC_ALREADY_EXISTS,
        ErrorCode.POLICY_VIOLATION,
    },
    KafkaApiKey.INCREMENTAL_ALTER_CONFIGS: {
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_REQUEST,
    },
    KafkaApiKey.JOIN_GROUP: {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INCONSISTENT_GROUP_PROTOCOL},
}
"""Codes of which a request may get either, if it is wrong in two ways."""


@dataclasses.dataclass(slots=True)
class Difference:
    """A request that the two brokers answer differently.

    A request that millrace cannot decode is the text of its error.
    """

    api: KafkaApi
    version: int
    request: Message | str
    theirs: object
    ours: object

    def kind(self) -> str:
        """Differences of one kind are counted together."""
        return f"{self.api.name}: {_codes(self.theirs)} there, {_codes(self.ours)} here"

    def known_as(self) -> str | None:
        """The sentence of `docs/kafka.md` that explains it; None: there is none."""
        return next((sentence for sentence, is_it in KNOWN.items() if is_it(self)), None)

    def __str__(self) -> str:
        batches = [
            bytes(records).hex()
            for part in parts(self.request)
            if (records := getattr(part, "records", None)) is not None
        ]
        shown = " ".join((f"{self.api.name} v{self.version} {self.request!r}", *batches))
        return f"{shown}\n    Kafka    {self.theirs}\n    millrace {self.ours}"


def _codes(value: object) -> str:
    return value if isinstance(value, str) else ",".join(map(str, sorted({*error_codes(value)})))


def error_codes(value: object) -> Iterator[int]:
    """Every error code in what is compared of a response."""
    if isinstance(value, list):
        for each in value:
            yield from error_codes(each)
    elif isinstance(value, dict):
        yield from (v for k, v in value.items() if k.endswith("error_code") and isinstance(v, int))
        for each in value.values():
            yield from error_codes(each)


def _is_lenient_there(difference: Difference) -> bool:
    request = difference.request
    return isinstance(request, str) and any(words in request for words in _ENCODING)


def _is_silent_there(difference: Difference) -> bool:
    return difference.theirs == SILENT


def _fails_there(difference: Difference) -> bool:
    return UNKNOWN_SERVER_ERROR in error_codes(difference.theirs)


def _is_of_a_transaction(difference: Difference) -> bool:
    request = difference.request
    return (
        difference.api.key is KafkaApiKey.INIT_PRODUCER_ID
        and getattr(request, "transactional_id", None) is not None
    ) or (
        difference.api.key is KafkaApiKey.FIND_COORDINATOR and getattr(request, "key_type", 0) != 0
    )


def _names_no_group(difference: Difference) -> bool:
    return any(
        getattr(part, name, None) == "" or "" in (getattr(part, names, None) or ())
        for part in parts(difference.request)
        for name, names in (
            ("group_id", "groups"),
            ("group_id", "groups_names"),
            ("key", "coordinator_keys"),
        )
    )


def _names_something_twice(difference: Difference) -> bool:
    return any(
        count > 1
        for part in parts(difference.request)
        for field in dataclasses.fields(part)
        if isinstance(listed := getattr(part, field.name), tuple)
        for count in Counter(map(_named, listed)).values()
    )


def _named(part: object) -> object:
    names = ("name", "topic", "topic_id", "partition_index", "index", "partition", "resource_name")
    if not isinstance(part, Message):
        return part
    return tuple(getattr(part, name, None) for name in names)


def _is_about_a_brokers_settings(difference: Difference) -> bool:
    return difference.api.key in (
        KafkaApiKey.ALTER_CONFIGS,
        KafkaApiKey.INCREMENTAL_ALTER_CONFIGS,
    ) and any(getattr(part, "resource_type", 0) == _BROKER for part in parts(difference.request))


def _has_an_empty_policy(difference: Difference) -> bool:
    return any(
        getattr(part, "name", "") == "cleanup.policy" and getattr(part, "value", None) == ""
        for part in parts(difference.request)
    )


def _holds_no_batch(difference: Difference) -> bool:
    return difference.api.key is KafkaApiKey.PRODUCE and any(
        bytes(records or b"")[16:17] != b"\x02"
        for part in parts(difference.request)
        if (records := getattr(part, "records", b"\0" * 16 + b"\x02")) is not None
    )


def _has_a_base_offset(difference: Difference) -> bool:
    return difference.api.key is KafkaApiKey.PRODUCE and any(
        bytes(records or b"")[:8].strip(b"\0")
        for part in parts(difference.request)
        if (records := getattr(part, "records", None)) is not None
    )


def _goes_on_from_no_partition(difference: Difference) -> bool:
    cursor = getattr(difference.request, "cursor", None)
    return cursor is not None and cursor.partition_index < 0


def _names_by_name_and_id(difference: Difference) -> bool:
    return (
        difference.api.key is KafkaApiKey.METADATA
        and len(
            {
                part.topic_id == NO_ID
                for part in parts(difference.request)
                if hasattr(part, "topic_id")
            }
        )
        > 1
    )


def _says_what_it_fetched_last(difference: Difference) -> bool:
    return difference.api.key is KafkaApiKey.FETCH and any(
        getattr(part, "last_fetched_epoch", -1) >= 0 for part in parts(difference.request)
    )


def _has_an_acl_of_no_meaning(difference: Difference) -> bool:
    acls = (KafkaApiKey.DESCRIBE_ACLS, KafkaApiKey.CREATE_ACLS, KafkaApiKey.DELETE_ACLS)
    return difference.api.key in acls and difference.theirs == CLOSED


def _gives_no_time(difference: Difference) -> bool:
    return difference.api.key in _WITH_TIMEOUT and getattr(difference.request, "timeout_ms", 1) <= 0


def _is_of_an_empty_group(difference: Difference) -> bool:
    if difference.api.key is KafkaApiKey.LIST_GROUPS:
        is_chosen = bool(getattr(difference.request, "states_filter", ()))
        return is_chosen or _group_ids(difference.ours) < _group_ids(difference.theirs)
    theirs, ours = ({*error_codes(each)} for each in (difference.theirs, difference.ours))
    is_left_in_rebalance = {
        KafkaApiKey.JOIN_GROUP: ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        KafkaApiKey.DELETE_GROUPS: ErrorCode.NON_EMPTY_GROUP,
        KafkaApiKey.OFFSET_DELETE: ErrorCode.NON_EMPTY_GROUP,
    }.get(difference.api.key)
    if is_left_in_rebalance in theirs - ours:
        return ours <= {ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED, ErrorCode.GROUP_ID_NOT_FOUND}
    return (
        difference.api.key in _OF_EMPTY_GROUPS
        and ErrorCode.GROUP_ID_NOT_FOUND in ours
        and ErrorCode.NONE in theirs
    )


def _comes_as_a_time_ends(difference: Difference) -> bool:
    codes = [{*error_codes(each)} for each in (difference.theirs, difference.ours)]
    return difference.api.key is KafkaApiKey.JOIN_GROUP and codes == [
        {ErrorCode.NONE},
        {ErrorCode.INCONSISTENT_GROUP_PROTOCOL},
    ]


def _group_ids(response: Any) -> set[str]:
    return {each["group_id"] for each in response["groups"]}


def _is_refused_for_another_reason(difference: Difference) -> bool:
    theirs, ours = ({*error_codes(each)} for each in (difference.theirs, difference.ours))
    return bool(theirs ^ ours) and theirs ^ ours <= _OTHER_ORDER.get(difference.api.key, set())


def parts(request: object) -> Iterator[Message]:
    """A request with all messages in it; none of one that cannot be decoded."""
    if isinstance(request, Message):
        yield request
        for field in dataclasses.fields(request):
            yield from parts(getattr(request, field.name))
    elif isinstance(request, tuple):
        for each in request:
            yield from parts(each)


KNOWN: dict[str, Callable[[Difference], bool]] = {
    "A body that breaks the rules of the encoding closes the connection.": _is_lenient_there,
    "Kafka leaves some requests without a response.": _is_silent_there,
    "Kafka answers some requests with UNKNOWN_SERVER_ERROR (-1).": _fails_there,
    "There are no transactions.": _is_of_a_transaction,
    "A group has a name.": _names_no_group,
    "What is named twice is refused.": _names_something_twice,
    "A broker's settings are changed in its file.": _is_about_a_brokers_settings,
    "A `cleanup.policy` names a policy.": _has_an_empty_policy,
    "Records that are no batch are refused for their partition.": _holds_no_batch,
    "The base offset of a batch is overwritten.": _has_a_base_offset,
    "DescribeTopicPartitions goes on from any cursor.": _goes_on_from_no_partition,
    "Metadata takes names and ids in one request.": _names_by_name_and_id,
    "A fetch tells no follower where its log parts.": _says_what_it_fetched_last,
    "An entry of access control that cannot be is refused.": _has_an_acl_of_no_meaning,
    "A change takes the time it takes.": _gives_no_time,
    "A group without members and offsets is gone at once.": _is_of_an_empty_group,
    "A group counts its own time.": _comes_as_a_time_ends,
    "A request that is wrong in two ways gets the code of either.": _is_refused_for_another_reason,
}
"""Each sentence begins a line of the list, with what tells a difference of its kind."""
