"""The Spark session of a pipeline: on this machine, on a cluster, or through Spark Connect.

Owns the meaning of the master's URL. `spark_session` has the settings of a local session.
"""

from __future__ import annotations

import logging
import os
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

from millrace.errors import ConfigError
from millrace_spark.pipeline.errors import JobFailed
from millrace_spark.pipeline.spark_output import SparkOutput
from millrace_spark.pipeline.spark_tasks import error_of_task
from millrace_spark.spark_session import local_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

QUIET = {
    "spark.log.level": "FATAL",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.sql.session.timeZone": "UTC",
}
"""No output of Spark, and times in UTC on every machine."""


def start_spark(
    app_name: str,
    *,
    master: str | None,
    conf: tuple[str, ...] = (),
    output: SparkOutput | None = None,
) -> SparkSession:
    """The running session, or a new one, whose JVM prints to `output`.

    `master` is Spark's (`local[4]`, `spark://HOST:7077`, `yarn`, `k8s://...`), or `sc://HOST:PORT`
    for Spark Connect; None is this machine with all its cores. Raises `JavaNotFound`,
    `ConfigError`, `JobFailed`.
    """
    try:
        from pyspark import SparkConf
        from pyspark.sql import SparkSession
    except ImportError as error:
        raise ConfigError("this needs pyspark: pip install 'millrace[spark]'") from error
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    _silence_pyspark()
    given = parse_conf(conf)
    settings = {**QUIET, **given}
    output = SparkOutput() if output is None else output
    if "spark.log.level" in given:
        output.show_from_now()
    try:
        if master is not None and master.startswith("sc://"):
            builder = SparkSession.builder.appName(app_name).remote(master)
        else:
            if is_local(master):
                _silence_jvm()
                settings = {**local_settings(), **settings}
            settings |= {"spark.master": master or "local[*,3]", "spark.app.name": app_name}
            output.start_context(SparkConf().setAll(list(settings.items())))
            builder = SparkSession.builder
        for name, value in settings.items():
            builder = builder.config(name, value)
        session = builder.getOrCreate()
    except Exception as error:
        raise _start_error(error, output) from error
    output.show_from_now()
    return session


def is_local(master: str | None) -> bool:
    """Whether that is a session on this machine."""
    return master is None or master.startswith("local")


def _start_error(error: Exception, output: SparkOutput) -> Exception:
    found = error_of_task(error)
    if "JAVA_GATEWAY_EXITED" in str(error):
        return JobFailed(f"Spark's JVM did not start: {output.last_lines() or error}")
    return found


def _silence_pyspark() -> None:
    """Turns off the log of errors with their stacks: the caller gets each as an error."""
    for name in ("DataFrameQueryContextLogger", "SQLQueryContextLogger"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)
    # py4j logs an interrupted call to the root logger, which prints it if it has no handler.
    if not logging.getLogger().handlers:
        logging.getLogger().addHandler(logging.NullHandler())


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
