"""Async clients of the millrace broker.

    from millrace import Admin, Consumer, Producer

`millrace.sync` has the same three without an event loop; `millrace.errors` is all they raise.

The names below are imported when they are first used, so that `millrace --help` and
`millrace serve` load no client.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from millrace._producer.receipts import Deliveries, Delivery, Receipts
    from millrace.admin import Admin
    from millrace.arrow import ArrowReader, read_arrow
    from millrace.config import ConsumerOptions, ProducerOptions
    from millrace.consumer import Consumer
    from millrace.errors import MillraceError
    from millrace.events import (
        ConsumerHealth,
        Event,
        EventKind,
        GroupHealth,
        ProducerHealth,
        State,
    )
    from millrace.groups import CommitOutcome, CommittedOffset
    from millrace.metrics import ConsumerMetrics, ProducerMetrics
    from millrace.partitioner import Partitioner, by_key
    from millrace.producer import Producer
    from millrace.records import Headers, Receipt, Record, RecordBatch, TopicPartition

__all__ = [
    "Admin",
    "ArrowReader",
    "CommitOutcome",
    "CommittedOffset",
    "Consumer",
    "ConsumerHealth",
    "ConsumerMetrics",
    "ConsumerOptions",
    "Deliveries",
    "Delivery",
    "Event",
    "EventKind",
    "GroupHealth",
    "Headers",
    "MillraceError",
    "Partitioner",
    "Producer",
    "ProducerHealth",
    "ProducerMetrics",
    "ProducerOptions",
    "Receipt",
    "Receipts",
    "Record",
    "RecordBatch",
    "State",
    "TopicPartition",
    "by_key",
    "read_arrow",
]

_HOMES = {
    "_producer.receipts": (
        "Deliveries",
        "Delivery",
        "Receipts",
    ),
    "admin": ("Admin",),
    "arrow": (
        "ArrowReader",
        "read_arrow",
    ),
    "config": (
        "ConsumerOptions",
        "ProducerOptions",
    ),
    "consumer": ("Consumer",),
    "errors": ("MillraceError",),
    "events": (
        "ConsumerHealth",
        "Event",
        "EventKind",
        "GroupHealth",
        "ProducerHealth",
        "State",
    ),
    "groups": (
        "CommitOutcome",
        "CommittedOffset",
    ),
    "metrics": (
        "ConsumerMetrics",
        "ProducerMetrics",
    ),
    "partitioner": (
        "Partitioner",
        "by_key",
    ),
    "producer": ("Producer",),
    "records": (
        "Headers",
        "Receipt",
        "Record",
        "RecordBatch",
        "TopicPartition",
    ),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}
_MODULES = ("errors", "sync")


def __getattr__(name: str) -> Any:
    if name == "__version__":
        from importlib.metadata import version

        return version("millrace")
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
