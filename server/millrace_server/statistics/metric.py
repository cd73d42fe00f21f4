"""What a metric is: name, kind, unit, labels. Names and units follow Prometheus's conventions.

Source: https://prometheus.io/docs/practices/naming/
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import StrEnum

_NAME = re.compile(r"millrace(_[a-z]+)+")


class Kind(StrEnum):
    """How the values of a metric move."""

    COUNTER = "counter"
    """Grows from 0 at the broker's start."""
    GAUGE = "gauge"
    """Goes up and down."""
    HISTOGRAM = "histogram"
    """Counts observed values by size."""


class Unit(StrEnum):
    """What the values of a metric are; a plain number has none."""

    NONE = ""
    BYTES = "bytes"
    SECONDS = "seconds"


DECIMALS = {Unit.NONE: 0, Unit.BYTES: 0, Unit.SECONDS: 9}
"""Values are integers, of 10 ** -decimals of the unit: times are in nanoseconds."""


@dataclass(frozen=True, slots=True)
class Metric:
    """One metric. `bounds` are a histogram's: the largest value of each bucket but the last.
    `kafka` is what Kafka's JMX calls it, an MBean or an attribute of one; empty if it has none.

    Raises `ValueError` for a name that breaks the conventions.
    """

    name: str
    kind: Kind
    help: str
    unit: Unit = Unit.NONE
    labels: tuple[str, ...] = ()
    bounds: tuple[int, ...] = ()
    kafka: str = ""

    def __post_init__(self) -> None:
        suffix = f"_{self.unit}" if self.unit else ""
        suffix += "_total" if self.kind is Kind.COUNTER else ""
        if not _NAME.fullmatch(self.name) or not self.name.endswith(suffix):
            raise ValueError(f"{self.name!r}: a {self.kind} is named millrace_...{suffix}")
        if (self.kind is Kind.HISTOGRAM) is not bool(self.bounds):
            raise ValueError(f"{self.name!r}: a histogram has bounds, a {self.kind} none")

    @property
    def decimals(self) -> int:
        """See `DECIMALS`."""
        return DECIMALS[self.unit]
