"""Where Spark finds the `millrace` format: it imports every top-level module named `pyspark_*`.

Imports one light module and nothing else: a module of that name that fails to import hides every
data source of the environment from Spark.
"""

from millrace_spark.source import MillraceSource as DefaultSource

__all__ = ["DefaultSource"]
