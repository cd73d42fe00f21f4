"""A broker for the tests of the connector, and one Spark session for all that need one."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from typing import Any

import pytest

from millrace_server.testing import BrokerThread


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A running broker; retention looks at its topics often, and takes nothing unless told to."""
    topic = {"durability": "os", "retention.ms": "-1"}
    with BrokerThread(topic=topic, housekeeping_interval_ms=10) as running:
        yield running


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """A Spark session on this machine; skips the test where it cannot be."""
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev,spark]'")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        pytest.skip("needs Java 17 or newer on the PATH, or JAVA_HOME")
    from millrace_spark import session

    settings = {
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    found = session("millrace tests", master="local[2,3]", conf=settings)
    yield found
    found.stop()
