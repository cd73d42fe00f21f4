"""Spark as tests start it: its JVM and its workers start sooner.

Owns the settings for that. They are those of any user, in the environment and in a file of
properties, so that they also reach the processes that a test starts.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

NO_JAVA = "needs Java 17 or newer on the PATH, or JAVA_HOME"
HAS_JAVA = bool(os.environ.get("JAVA_HOME")) or shutil.which("java") is not None
needs_java = pytest.mark.skipif(not HAS_JAVA, reason=NO_JAVA)

_PROPERTIES = """
spark.sql.shuffle.partitions 2
spark.ui.enabled false
"""
_JVM = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xshare:auto -Xlog:disable"
"""Much of what a JVM costs here is its start and its compiler. Its log would be on stdout."""

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

_FIRST_QUERIES = """
from millrace.sync import Admin, Producer
from millrace_server.testing import BrokerThread
from millrace_spark import session

spark = session("class archive", master="local[2]")
with BrokerThread() as broker:
    with Admin(broker.servers) as admin:
        admin.create_topic("t")
    with Producer(broker.servers) as producer:
        producer.send("t", b"value")
    topic = spark.read.format("millrace").option("millrace.servers", broker.servers)
    topic.option("subscribe", "t").load().groupBy("partition").count().collect()
spark.stop()
"""


def environment(directory: Path, classes: Path) -> dict[str, str]:
    """The environment of a process that starts Spark; writes into the directory.

    `classes` is where `archive_classes` has put an archive, or nothing.
    """
    properties = directory / "spark.conf"
    properties.write_text(_PROPERTIES)
    python = directory / "python"
    python.write_text(_PYTHON.format(python=sys.executable))
    python.chmod(0o755)
    jvm = f"{_JVM} -XX:SharedArchiveFile={classes}"
    return {
        # A directory that exists would be on the class path, which the archive must equal.
        "SPARK_CONF_DIR": str(directory / "none"),
        "PYSPARK_SUBMIT_ARGS": f"--properties-file {properties} pyspark-shell",
        "SPARK_SUBMIT_OPTS": jvm,
        "SPARK_LAUNCHER_OPTS": jvm,
        "PYSPARK_PYTHON": str(python),
        # The workers that find and plan data sources.
        "PYSPARK_DRIVER_PYTHON": str(python),
    }


def archive_classes(classes: Path) -> None:
    """Writes the classes of Spark's first queries in the JVM's own format (AppCDS), once.

    A JVM that maps the archive needs half the CPU time up to its first query. It ignores an
    archive of other versions; `pytest --cache-clear` removes it.
    """
    if classes.exists() or not HAS_JAVA or importlib.util.find_spec("pyspark") is None:
        return
    with tempfile.TemporaryDirectory() as directory:
        part = classes.with_name(f"{classes.name}.{os.getpid()}")
        settings = environment(Path(directory), classes)
        settings["SPARK_SUBMIT_OPTS"] = f"{_JVM} -XX:ArchiveClassesAtExit={part}"
        subprocess.run(
            [sys.executable, "-c", _FIRST_QUERIES],
            env={**os.environ, **settings},
            capture_output=True,
        )
        # Another process may have been first, and a JVM without the option writes none.
        if part.exists():
            part.replace(classes)
