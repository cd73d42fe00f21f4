"""The topics of a query: their offset ranges, and the fields of their values.

Owns the questions to the brokers before a query runs.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from millrace.errors import NotAuthorized
from millrace.sync import Admin, read_arrow, topic_dataset
from millrace_cli.client_identity import identity
from millrace_cli.sql.value_fields import arrow_fields, infer_schema

if TYPE_CHECKING:
    from millrace._sync.topic_dataset import TopicDataset

SAMPLE_RECORDS = 1_000
"""Records of a topic from which the fields of its values are inferred, the first ones of each
partition in equal parts."""


@dataclass(frozen=True, slots=True)
class TopicTable:
    """A topic as a table: offsets `[start, end)` by partition, none empty, and a schema.

    `schema` is a struct in Spark's JSON, or None for values that have no fields.
    """

    topic: str
    starts: Mapping[int, int]
    ends: Mapping[int, int]
    schema: str | None
    is_inferred: bool

    def dataset(self, servers: str) -> TopicDataset:
        """The table for DuckDB."""
        return topic_dataset(
            self.topic,
            servers,
            start=self.starts,
            end=self.ends,
            partitions=[*self.starts],
            fields=arrow_fields(self.schema),
            **identity(CLIENT_ID),
        )


CLIENT_ID = "millrace-sql"


def known_topics(servers: str, named: Collection[str]) -> list[str]:
    """The names of all topics. Raises `NotAuthorized` where one of `named` may not be seen."""
    with Admin(servers, **identity(CLIENT_ID)) as admin:
        for outcome in admin.describe_topics(sorted(named)):
            if isinstance(outcome.error, NotAuthorized):
                raise outcome.error
        return admin.list_topics(internal=True)


def open_table(
    topic: str,
    servers: str,
    *,
    start_ms: int | None,
    end_ms: int | None,
    schema: str | None,
) -> TopicTable:
    """A topic up to its current ends, between the first records at or after two times.

    Infers the fields where there is no schema.
    """
    ranges = topic_dataset(
        topic,
        servers,
        start="earliest" if start_ms is None else start_ms,
        end="latest" if end_ms is None else end_ms,
        **identity(CLIENT_ID),
    ).ranges
    starts = {where.partition: first for where, (first, _) in ranges.items()}
    ends = {where.partition: last for where, (_, last) in ranges.items()}
    is_inferred = schema is None
    if schema is None and starts:
        share = -(-SAMPLE_RECORDS // len(starts))
        stops = {each: min(ends[each], first + share) for each, first in starts.items()}
        schema = _inferred(topic, servers, starts, stops)
    return TopicTable(topic, starts, ends, schema, is_inferred)


def _inferred(
    topic: str, servers: str, starts: Mapping[int, int], stops: Mapping[int, int]
) -> str | None:
    sample = read_arrow(
        topic,
        servers,
        start=starts,
        end=stops,
        partitions=[*starts],
        columns=["partition", "offset", "value"],
        **identity(CLIENT_ID),
    ).read_all()
    # In order, so that the columns are in the same order every time.
    order = [("partition", "ascending"), ("offset", "ascending")]
    return infer_schema(sample.sort_by(order).column("value").to_pylist())


def current_ends(topics: Collection[str], servers: str) -> dict[tuple[str, int], int]:
    """The ends of all partitions of the topics."""
    with Admin(servers, **identity(CLIENT_ID)) as admin:
        wheres = [
            (topic.name, partition.partition)
            for topic in (outcome.unwrap() for outcome in admin.describe_topics(topics))
            for partition in topic.partitions
        ]
        found = admin.list_offsets(dict.fromkeys(wheres, "latest"))
        return {(where.topic, where.partition): each.offset for where, each in found.items()}
