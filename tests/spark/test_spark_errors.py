"""The sentence of an import, export or aggregate for an error that Spark reports."""

from __future__ import annotations

import pytest

from millrace.errors import ConnectionFailed
from millrace_spark.pipeline.errors import JobFailed
from millrace_spark.pipeline.spark_tasks import error_of_task

WORKER = """An exception was thrown from the Python worker:
Traceback (most recent call last):
  File "/opt/spark/python/lib/pyspark.zip/pyspark/serializers.py", line 483, in loads
    return cloudpickle.loads(obj, encoding=encoding)
"""
REMEDY = "PYSPARK_PYTHON must name the same Python, with millrace[spark], on every machine"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (
            f"{WORKER}ModuleNotFoundError: No module named 'millrace_spark'\n",
            "the Python of Spark's workers has no millrace_spark",
        ),
        (
            f"{WORKER}pyspark.errors.exceptions.base.PySparkRuntimeError: "
            "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in "
            "driver: 3.11, PySpark cannot run with different minor versions.\nPlease check",
            "Spark's workers run Python 3.12, and the driver runs Python 3.11",
        ),
        (
            "An error occurred while calling o64.collectToPython.\n: org.apache.spark."
            "SparkException: Job aborted due to stage failure: Task 0 in stage 0.0 failed 4 times, "
            "most recent failure: Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): "
            'java.io.IOException: Cannot run program "/opt/venv/bin/python": error=2, No such file '
            "or directory\n\tat java.base/java.lang.ProcessBuilder.start(ProcessBuilder.java:1143)",
            "Spark's workers have no program /opt/venv/bin/python",
        ),
    ],
)
def test_a_wrong_python_on_the_workers_is_one_sentence(text: str, sentence: str) -> None:
    found = error_of_task(RuntimeError(text))
    assert isinstance(found, JobFailed)
    assert str(found) == f"{sentence}: {REMEDY}"


def test_an_error_of_a_client_has_its_own_type_and_words() -> None:
    found = error_of_task(
        RuntimeError(
            "[PYTHON_DATA_SOURCE_ERROR] Failed to generate Python data source read partitions: "
            "Traceback (most recent call last):\n"
            "millrace.errors.ConnectionFailed: no broker at 127.0.0.2:1: Connection refused\n"
            " SQLSTATE: 38000"
        )
    )
    assert isinstance(found, ConnectionFailed)
    assert str(found) == "no broker at 127.0.0.2:1: Connection refused"
