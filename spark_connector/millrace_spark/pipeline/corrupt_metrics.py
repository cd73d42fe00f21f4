"""What is corrupt in the records that a query reads, counted by Spark while the query runs.

Owns the metrics of that observation, and the sentence about them.
"""

from __future__ import annotations

import io
import threading
from contextlib import redirect_stdout
from typing import TYPE_CHECKING, Any

from millrace_spark.pipeline.corrupt_records import share

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Observation

CORRUPT_FIELDS = "_corrupt_fields"
"""The column of the connector with the names of the fields that are corrupt."""
_WAIT_S = 10.0
"""Longest wait for the metrics. Spark may find while a query runs that it needs no record of it."""


def corrupt_metrics(prefix: str) -> list[Column]:
    """The metrics of a frame whose own columns of a record begin with `prefix`."""
    from pyspark.sql import functions as f

    fields = f.col(CORRUPT_FIELDS)
    place = [f.col(prefix + name) for name in ("topic", "partition", "offset")]
    return [
        f.count(f.lit(1)).alias("records"),
        f.count(fields).alias("corrupt"),
        f.coalesce(f.sum(f.size(fields)), f.lit(0)).alias("fields"),
        f.min(f.when(fields.isNotNull(), f.struct(*place, fields))).alias("first"),
    ]


def observed_sentence(frame: DataFrame, observation: Observation) -> str | None:
    """A sentence about what was corrupt in the query of `frame`; None if nothing was."""
    found = _observed(observation) if _is_observed(frame) else None
    if not found or not found["corrupt"]:
        return None
    topic, partition, offset, fields = found["first"]
    reason = f"in {', '.join(fields)}" if fields else "which is no JSON object"
    nulls = f"{found['fields']:,} field{'' if found['fields'] == 1 else 's'}"
    return (
        f"{share(found['corrupt'], found['records'])}, {nulls} in all; the first is at "
        f"{topic}-{partition} offset {offset}, {reason}"
    )


def _is_observed(frame: DataFrame) -> bool:
    """Whether the plan has the metrics: a query need not use the view."""
    plan = io.StringIO()
    with redirect_stdout(plan):
        frame.explain()
    return "CollectMetrics" in plan.getvalue()


def _observed(observation: Observation) -> dict[str, Any] | None:
    found: list[dict[str, Any]] = []
    # The call has no timeout of its own.
    waiter = threading.Thread(
        target=lambda: found.append(observation.get), name="corrupt-metrics", daemon=True
    )
    waiter.start()
    waiter.join(_WAIT_S)
    return found[0] if found else None
