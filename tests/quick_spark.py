"""Spark as tests start it: its JVM and its workers start sooner.

Owns the settings for that. They are those of any user, in a configuration directory and in the
environment, so that they also reach the processes that a test starts.
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
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        *.zip) ;;
        *) kept=$kept:$entry ;;
    esac
done
PYTHONPATH=${{kept#:}} exec {python} "$@"
"""
"""The Python of workers without the archives that Spark puts before the installed pyspark: each
worker would compile all modules that it imports from them, for half a second."""


def environment(directory: Path) -> dict[str, str]:
    """The environment of a process that starts Spark; writes into the directory."""
    (directory / "spark-defaults.conf").write_text(_DEFAULTS)
    python = directory / "python"
    python.write_text(_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    return {
        "SPARK_CONF_DIR": str(directory),
        "PYSPARK_PYTHON": str(python),
        # The workers that find and plan data sources.
        "PYSPARK_DRIVER_PYTHON": str(python),
    }
