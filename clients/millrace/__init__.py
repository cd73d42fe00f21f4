"""Async clients of the millrace broker.

    from millrace import Admin, Consumer, Producer

`millrace.sync` has the same three without an event loop; `millrace.errors` is all they raise.
"""

from millrace._batch import Delivery, Receipts
from millrace.admin import Admin
from millrace.config import ConsumerOptions, ProducerOptions
from millrace.consumer import Consumer
from millrace.errors import MillraceError
from millrace.events import ConsumerHealth, Event, EventKind, ProducerHealth, State
from millrace.partitioner import Partitioner, by_key
from millrace.producer import Producer
from millrace.records import Headers, Receipt, Record, RecordBatch, TopicPartition

__all__ = [
    "Admin",
    "Consumer",
    "ConsumerHealth",
    "ConsumerOptions",
    "Delivery",
    "Event",
    "EventKind",
    "Headers",
    "MillraceError",
    "Partitioner",
    "Producer",
    "ProducerHealth",
    "ProducerOptions",
    "Receipt",
    "Receipts",
    "Record",
    "RecordBatch",
    "State",
    "TopicPartition",
    "by_key",
]
