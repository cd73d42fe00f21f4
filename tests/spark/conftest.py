"""A broker for the tests of the connector, and one Spark session for all that need one."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from millrace_server.testing import BrokerThread
from tests.quick_spark import HAS_JAVA, NO_JAVA
from tests.spark.driven_stream import Document, Stream


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM that starts on a busy machine takes longer than a hung test should."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.timeout(1_200))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A running broker; retention looks at its topics often, and takes nothing unless told to."""
    topic = {"durability": "os", "retention.ms": "-1"}
    with BrokerThread(topic=topic, housekeeping_interval_ms=10) as running:
        yield running


@pytest.fixture(scope="session")
def spark(quick_spark: dict[str, str]) -> Iterator[Any]:
    """A Spark session on this machine; skips the test where it cannot be."""
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev,spark]'")
    if not HAS_JAVA:
        pytest.skip(NO_JAVA)
    from millrace_spark import session

    os.environ.update(quick_spark)
    settings = {
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
        # Of the server of Spark Connect, which one test starts: any that is free.
        "spark.connect.grpc.binding.port": "0",
    }
    found = session("millrace tests", master="local[2,3]", conf=settings)
    yield found
    found.stop()


@pytest.fixture
def streams(broker: BrokerThread) -> Iterator[Callable[..., Stream]]:
    """Makes streams that begin at the earliest records unless told otherwise."""
    made: list[Stream] = []

    def make(documents: list[Document] | None = None, **options: str) -> Stream:
        named = {"millrace.servers": broker.servers, "startingOffsets": "earliest", **options}
        made.append(Stream([] if documents is None else documents, named))
        return made[-1]

    yield make
    for stream in made:
        stream.reader.stop()
