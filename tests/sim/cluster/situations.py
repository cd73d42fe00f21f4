"""What a set of runs of clusters must have met."""

from __future__ import annotations

CLUSTER_SOMETIMES = (
    # What is done to them.
    "the broker was killed",
    "a broker was paused",
    "a broker was cut off from the others",
    "a majority lost its power",
    "all brokers lost their power",
    "a power cut met unsynced data",
    "a wall clock jumped",
    "the broker stopped in order",
    "the broker stopped after a disk error",
    "a full disk refused something",
    "a connection was reset",
    "a message was swallowed",
    "a client was killed",
    "replicas were moved",
    # What the brokers make of it.
    "a controller was elected",
    "a partition was led in a new epoch",
    "an ISR was smaller than the replicas",
    "a replica was eligible outside the ISR",
    "a follower truncated its log",
    "a snapshot of the metadata was installed",
    "a start was refused for want of a quorum",
    "recovery cut a torn tail",
    "retention removed a segment",
    "a duplicate was recognised by its sequence",
    "a topic was deleted",
    # What clients see.
    "a client was told of an error",
    "a send ended unknown",
    "a send failed for sure",
    "a consumer was given batches of two epochs",
    "a member was assigned partitions",
    "a commit was acked",
)
