"""The consumer group that shows the progress of a stream; the brokers are real."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from millrace.records import TopicPartition
from millrace.sync import Admin, Consumer
from millrace_server.testing import BrokerThread
from millrace_spark.errors import OptionError
from tests.spark.driven_stream import Stream, produce, records

pytestmark = [
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture
def admin(broker: BrokerThread) -> Iterator[Admin]:
    with Admin(broker.servers) as running:
        yield running


def test_a_group_shows_all_that_is_done_even_when_no_more_comes(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("shown", partitions=2)
    produce(broker, "shown", p0=3, p1=1)
    stream = streams(subscribe="shown", commitGroup="shown-progress").stop_at_latest()
    stream.to_the_end()
    committed = admin.list_group_offsets("shown-progress")
    assert {tuple(where): at.offset for where, at in committed.items()} == {
        ("shown", 0): 3,
        ("shown", 1): 1,
    }


def test_a_group_shows_nothing_that_is_not_done(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("undone", partitions=1)
    produce(broker, "undone", p0=3)
    stream = streams(subscribe="undone", commitGroup="undone-progress", maxOffsetsPerTrigger="1")
    where = TopicPartition("undone", 0)
    for done in (0, 0, 1, 2):
        stream.batch()
        assert admin.list_group_offsets("undone-progress")[where].offset == done


def test_a_group_with_members_is_refused(
    broker: BrokerThread, admin: Admin, streams: Callable[..., Stream]
) -> None:
    admin.create_topic("contested", partitions=1)
    with Consumer(broker.servers, group="contested-group") as consumer:
        consumer.subscribe(["contested"])
        while (
            admin.describe_groups(["contested-group"])["contested-group"].unwrap().state != "Stable"
        ):
            pass
        with pytest.raises(OptionError, match=r"commitGroup: contested-group has 1 members"):
            streams(subscribe="contested", commitGroup="contested-group").reader.initialOffset()


def test_a_commit_that_fails_does_not_fail_the_stream(
    broker: BrokerThread,
    admin: Admin,
    streams: Callable[..., Stream],
    caplog: pytest.LogCaptureFixture,
) -> None:
    admin.create_topic("unshown", partitions=1)
    stream = streams(subscribe="unshown", commitGroup="unshown-group")
    assert stream.batch() == []
    produce(broker, "unshown", p0=1)
    with Consumer(broker.servers, group="unshown-group") as consumer:
        consumer.subscribe(["unshown"])
        while admin.describe_groups(["unshown-group"])["unshown-group"].unwrap().state != "Stable":
            pass
        with caplog.at_level(logging.WARNING):
            assert stream.batch() == records("unshown", 0, 0, 1)
            assert stream.batch() is None
    assert caplog.text.count("does not show the progress of the stream") == 1
