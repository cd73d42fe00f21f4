"""Records of the metadata log: the only way the cluster's knowledge of itself changes.

Each is stored as one JSON object, so that `millrace dissect` on the log's segment shows a person
the history of the cluster. Unknown fields are ignored and unknown types refused: a broker must
not start on a log that a newer one has written rules into.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields


class UnreadableMetadata(Exception):
    """A record of the metadata log cannot be understood; the broker must not go on."""


@dataclass(frozen=True, slots=True)
class ClusterCreated:
    """The first record: the cluster's identity."""

    cluster_id: str


@dataclass(frozen=True, slots=True)
class TopicCreated:
    """A topic came to be, with partitions 0 to `partitions` - 1."""

    name: str
    topic_id: str
    partitions: int
    replication_factor: int
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class PartitionsAdded:
    """A topic has `partitions` partitions from now on."""

    topic_id: str
    partitions: int


@dataclass(frozen=True, slots=True)
class TopicConfigChanged:
    """A topic's own settings are exactly `configs` from now on."""

    topic_id: str
    configs: dict[str, str]


@dataclass(frozen=True, slots=True)
class TopicDeleted:
    """A topic and its records are gone."""

    topic_id: str


@dataclass(frozen=True, slots=True)
class ProducerIdsReserved:
    """Producer ids below `next_producer_id` may have been given out."""

    next_producer_id: int


MetadataRecord = (
    ClusterCreated
    | TopicCreated
    | PartitionsAdded
    | TopicConfigChanged
    | TopicDeleted
    | ProducerIdsReserved
)
_TYPES: dict[str, type[MetadataRecord]] = {
    cls.__name__: cls
    for cls in (
        ClusterCreated,
        TopicCreated,
        PartitionsAdded,
        TopicConfigChanged,
        TopicDeleted,
        ProducerIdsReserved,
    )
}


def encode_record(record: MetadataRecord) -> bytes:
    """The record's value in the metadata log."""
    return json.dumps({"type": type(record).__name__, **asdict(record)}).encode()


def decode_record(value: bytes) -> MetadataRecord:
    """A record from its value. Raises `UnreadableMetadata`."""
    try:
        content = json.loads(value)
        cls = _TYPES[content["type"]]
        for field in fields(cls):
            if not _fits(str(field.type), content[field.name]):
                raise TypeError(f"{field.name} is no {field.type}")
        return cls(**{field.name: content[field.name] for field in fields(cls)})
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise UnreadableMetadata(
            f"the metadata record {value[:200]!r} is not understood ({error!r}); was this data "
            "directory written by a newer millrace?"
        ) from error


def _fits(annotation: str, value: object) -> bool:
    """Whether a value from JSON can stand in a field of that type."""
    match annotation:
        case "str":
            return isinstance(value, str)
        case "int":
            return isinstance(value, int) and not isinstance(value, bool)
    return isinstance(value, dict) and all(isinstance(text, str) for text in value.values())
