"""What is corrupt in the records that a query reads, counted by Spark while the query runs.

Owns the metrics of that observation, and the sentence about them.
"""

from __future__ import annotations

import io
import threading
from collections.abc import Mapping
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
    return corrupt_sentence(found) if found and found["corrupt"] else None


def corrupt_sentence(metrics: Mapping[str, Any]) -> str:
    """A sentence about what is corrupt, by the metrics of `corrupt_metrics`; something is."""
    topic, partition, offset, fields = metrics["first"]
    reason = f"in {', '.join(fields)}" if fields else "which is no JSON object"
    nulls = f"{metrics['fields']:,} field{'' if metrics['fields'] == 1 else 's'}"
    return (
        f"{share(metrics['corrupt'], metrics['records'])}, {nulls} in all; the first is at "
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
