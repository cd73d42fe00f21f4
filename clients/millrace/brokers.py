"""Brokers: where they listen, their settings, and their data directories.

Owns the values that the admin client returns.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from millrace.errors import BrokerError
from millrace.records import TopicPartition


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    """Where one broker listens."""

    node_id: int
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster as one of its brokers sees it; `controller` is None while there is none."""

    cluster_id: str
    controller: int | None
    brokers: tuple[BrokerDescription, ...]


@dataclass(frozen=True, slots=True)
class ConfigValue:
    """A setting in force, as text; `doc` says what it means, with its unit.

    `source` of a topic's setting: topic, broker or default. `source` of a broker's: flag,
    environment, file, argument (of the program that embeds it) or default.
    """

    value: str
    is_default: bool
    source: str
    is_read_only: bool
    doc: str


@dataclass(frozen=True, slots=True)
class PartitionSize:
    """What a partition takes on a broker's disk: the bytes of its batches, as they are stored.

    `offset_lag`: offsets that the broker's log is behind the high watermark. With an `error` both
    are -1.
    """

    size_bytes: int
    offset_lag: int
    error: BrokerError | None = None


@dataclass(frozen=True, slots=True)
class LogDirectory:
    """A data directory of a broker; its space is -1 where it is not known, for which see `error`.

    `usable_bytes` is the space that is left to the broker.
    """

    node_id: int
    path: str
    total_bytes: int
    usable_bytes: int
    partitions: Mapping[TopicPartition, PartitionSize]
    error: BrokerError | None = None
