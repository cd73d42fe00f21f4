"""A broker for the tests of the connector, and one Spark session for all that need one."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from typing import Any

import pytest

from millrace_server.testing import BrokerThread


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """A JVM that starts on a busy machine takes longer than a hung test should."""
    for item in items:
        if item.get_closest_marker("spark") is not None:
            item.add_marker(pytest.mark.timeout(400))


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerThread]:
    """A running broker; retention looks at its topics often, and takes nothing unless told to."""
    topic = {"durability": "os", "retention.ms": "-1"}
    with BrokerThread(topic=topic, housekeeping_interval_ms=10) as running:
        yield running


_PYTHON = """#!/bin/sh
PYTHONPATH=$(echo "$PYTHONPATH" | tr : '\\n' | grep -v '\\.zip$' | paste -sd :) exec {python} "$@"
"""
"""A worker's Python without the archives that Spark puts before the installed pyspark: each worker
would compile all it imports from them, for half a second."""


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A Spark session on this machine; skips the test where it cannot be."""
    pytest.importorskip("pyspark", reason="needs pyspark: pip install '.[dev,spark]'")
    if not os.environ.get("JAVA_HOME") and shutil.which("java") is None:
        pytest.skip("needs Java 17 or newer on the PATH, or JAVA_HOME")
    from millrace_spark import session

    python = tmp_path_factory.mktemp("python") / "python"
    python.write_text(_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    os.environ["PYSPARK_PYTHON"] = str(python)
    settings = {
        # Half of what a JVM costs here is its start and its compiler.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.showConsoleProgress": "false",
    }
    found = session("millrace tests", master="local[2,3]", conf=settings)
    yield found
    found.stop()
