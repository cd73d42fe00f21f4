"""Import of topics into files, export of files to topics, and topic statistics, with Spark.

Importing this package imports neither pyspark nor pyarrow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace_spark.pipeline.import_run import (
        ImportSettings,
        ImportSummary,
        follow_topics,
        import_topics,
    )

__all__ = ["ImportSettings", "ImportSummary", "follow_topics", "import_topics"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from millrace_spark.pipeline import import_run

    return getattr(import_run, name)
