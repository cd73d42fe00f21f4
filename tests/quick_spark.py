"""Spark as tests start it: its JVM and its workers are there sooner.

Owns the settings that make it so, as a user would give them: in a configuration directory and in
the environment, so that a process which a test starts finds them too.
"""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

NO_JAVA = "needs Java 17 or newer on the PATH, or JAVA_HOME"
HAS_JAVA = bool(os.environ.get("JAVA_HOME")) or shutil.which("java") is not None
needs_java = pytest.mark.skipif(not HAS_JAVA, reason=NO_JAVA)

_DEFAULTS = """
spark.driver.extraJavaOptions -XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
"""Much of what a JVM costs here is its start and its compiler."""

_PYTHON = """#!/bin/sh
PYTHONPATH=$(echo "$PYTHONPATH" | tr : '\\n' | grep -v '\\.zip$' | paste -sd :) exec {python} "$@"
"""
"""A worker's Python without the archives that Spark puts before the installed pyspark: each worker
would compile all it imports from them, for half a second."""


def environment(directory: Path) -> dict[str, str]:
    """What a process that starts Spark needs in its environment; writes into the directory."""
    (directory / "spark-defaults.conf").write_text(_DEFAULTS)
    python = directory / "python"
    python.write_text(_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    return {"SPARK_CONF_DIR": str(directory), "PYSPARK_PYTHON": str(python)}
