"""The Spark session of a pipeline: on this machine, on a cluster, or through Spark Connect.

Owns the meaning of the master's URL. `spark_session` has the settings of a local session.
"""

from __future__ import annotations

import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.errors import ConfigError
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.spark_session import session

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {
    "spark.log.level": "FATAL",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""No output of Spark, and times in UTC on every machine."""


def start_spark(app_name: str, *, master: str | None, conf: tuple[str, ...] = ()) -> SparkSession:
    """The running session, or a new one.

    `master` is Spark's (`local[4]`, `spark://HOST:7077`, `yarn`, `k8s://...`), or `sc://HOST:PORT`
    for Spark Connect; None is this machine with all its cores. Raises `JavaNotFound`,
    `ConfigError`, `JobFailed`.
    """
    try:
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("this needs pyspark: pip install 'millrace[spark]'") from error
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    settings = {**QUIET, **parse_conf(conf)}
    try:
        if master is None or master.startswith("local"):
            _silence_jvm()
            return session(app_name, master=master or "local[*,3]", conf=settings)
        builder = SparkSession.builder.appName(app_name)
        builder = builder.remote(master) if master.startswith("sc://") else builder.master(master)
        for name, value in settings.items():
            builder = builder.config(name, value)
        return builder.getOrCreate()
    except Exception as error:
        raise error_of_task(error) from error


def _silence_jvm() -> None:
    """Turns off the JVM's early logging, unless the user configures Spark."""
    if not os.environ.keys() & {"SPARK_CONF_DIR", "SPARK_HOME"}:
        os.environ["SPARK_CONF_DIR"] = str(Path(__file__).parent / "spark_conf")


def parse_conf(pairs: tuple[str, ...]) -> dict[str, str]:
    """Settings of Spark as `KEY=VALUE`. Raises `ConfigError`.

    >>> parse_conf(("spark.executor.memory=4g",))
    {'spark.executor.memory': '4g'}
    """
    found = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.startswith("spark."):
            raise ConfigError(f"--conf {pair!r} is not spark.SOMETHING=VALUE")
        found[name] = value
    return found
