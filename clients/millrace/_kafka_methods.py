"""Names that methods have in aiokafka and confluent-kafka, and what they are here.

Owns the hint in the `AttributeError` of a client. `_kafka_settings` has the names of settings.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

METHODS: Final = {
    "send_and_wait": ("send",),
    "produce": ("post", "send"),
    "produce_batch": ("post_many", "send_many"),
    "create_batch": ("send_many",),
    "send_batch": ("send_many",),
    "partitions_for": ("partition_count",),
    "stop": ("close",),
    "poll": ("getone", "room", "flush"),
    "consume": ("getmany",),
    "highwater": ("end_offsets",),
    "last_stable_offset": ("end_offsets",),
    "get_watermark_offsets": ("end_offsets",),
    "store_offsets": ("commit",),
    "incremental_assign": ("assign",),
    "incremental_unassign": ("assign",),
    "unassign": ("unsubscribe",),
    "list_consumer_groups": ("list_groups",),
    "describe_consumer_groups": ("describe_groups",),
    "delete_consumer_groups": ("delete_groups",),
    "list_consumer_group_offsets": ("list_group_offsets",),
    "alter_consumer_group_offsets": ("alter_group_offsets",),
    "incremental_alter_configs": ("alter_configs",),
}
"""Kafka's name, and names here: the first that the client has is meant."""
_TRANSACTIONS = "there are no transactions yet"
_TOPICS = "Admin has list_topics and describe_topics"
NOTES: Final = {
    "abort_transaction": _TRANSACTIONS,
    "begin_transaction": _TRANSACTIONS,
    "commit_transaction": _TRANSACTIONS,
    "init_transactions": _TRANSACTIONS,
    "send_offsets_to_transaction": _TRANSACTIONS,
    "transaction": _TRANSACTIONS,
    "list_topics": _TOPICS,
    "partitions_for_topic": _TOPICS,
    "topics": _TOPICS,
    "cluster_id": "Admin.describe_cluster() has it",
}
"""What is there instead of a method that has no name here."""


def missing_method(client: type, name: str) -> str:
    """The sentence for an attribute that the class of a client lacks.

    >>> class Producer:
    ...     def send(self): ...
    >>> missing_method(Producer, "send_and_wait")
    "'Producer' object has no attribute 'send_and_wait'; did you mean send?"
    """
    sentence = f"{client.__name__!r} object has no attribute {name!r}"
    if name in NOTES:
        return f"{sentence}; {NOTES[name]}"
    for meant in METHODS.get(name, ()):
        if hasattr(client, meant):
            return f"{sentence}; did you mean {meant}?"
    return sentence


class KafkaMethodHints:
    """Makes the `AttributeError` of a client say what a method of Kafka's clients is here."""

    # Type checkers would take every name.
    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            raise AttributeError(missing_method(type(self), name), name=name, obj=self)
