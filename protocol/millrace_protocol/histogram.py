"""Quantiles of a histogram, estimated from the counts of its buckets (wire_spec.md W-4.24)."""

from __future__ import annotations

from collections.abc import Sequence


def quantile(bounds: Sequence[float], buckets: Sequence[int], fraction: float) -> float | None:
    """The value that a `fraction` of the observed values do not exceed; None when there is none.

    Within a bucket the values count as evenly spread, as in Prometheus's `histogram_quantile`. In
    the last bucket, which has no bound, the result is the largest bound.

    >>> quantile((10, 20, 40), (0, 8, 2, 0), 0.5), quantile((10, 20, 40), (0, 8, 2, 0), 0.9)
    (16.25, 30.0)
    """
    rank = fraction * sum(buckets)
    below, lower = 0, 0.0
    for bound, count in zip(bounds, buckets, strict=False):
        if count and below + count >= rank:
            return lower + (bound - lower) * (rank - below) / count
        below += count
        lower = bound
    return lower if sum(buckets) else None
