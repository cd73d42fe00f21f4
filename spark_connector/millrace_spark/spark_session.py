"""A local Spark session with settings that plain pyspark lacks.

Owns these settings, each with its reason. Without them pyspark fails on some machines with messages
that do not name the cause. A cluster has settings of its own.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from millrace_spark.errors import JavaNotFound

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOOPBACK = "127.0.0.1"


def session(
    app_name: str = "millrace",
    *,
    master: str = "local[*,3]",
    conf: Mapping[str, str] | None = None,
) -> SparkSession:
    """A Spark session on this machine; the running session if there is one.

    `conf` overrides the settings made here. `master` is `local[threads,attempts]`: with plain
    `local[*]` Spark never retries a task. Raises `JavaNotFound`, and `ImportError` without pyspark.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ImportError("session() needs pyspark: pip install 'millrace[spark]'") from error
    builder = SparkSession.builder.appName(app_name).master(master)
    for name, value in {**local_settings(), **(conf or {})}.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


def local_settings() -> dict[str, str]:
    """The settings of a session on this machine; sets those that are in the environment.

    Raises `JavaNotFound`.
    """
    _require_java()
    # By default, workers run the `python3` of the PATH, which may lack this package. Spark then
    # reports only that a worker exited.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    os.environ.setdefault("SPARK_LOCAL_IP", LOOPBACK)
    return dict(_SETTINGS)


_SETTINGS = {
    # A host name that does not resolve stops the driver from binding.
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    # Cheaper than TCP between the JVM and its Python workers.
    "spark.python.unix.domain.socket.enabled": "true",
    # The default manager starts processes to rename local files: 0.1 s in each micro-batch.
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


def _require_java() -> None:
    home = os.environ.get("JAVA_HOME")
    found = Path(home, "bin", "java").is_file() if home else shutil.which("java") is not None
    if not found:
        where = f"under JAVA_HOME={home}" if home else "on the PATH, and JAVA_HOME is not set"
        raise JavaNotFound(
            f"there is no java {where}; Spark needs Java 17 or newer: "
            "install openjdk-17-jre-headless, or set JAVA_HOME"
        )
