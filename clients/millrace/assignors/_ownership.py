"""The owner of each partition, derived from the claims of the members.

Members may say more than is true: one that was away still names what was given to others in the
meantime. Owns the judgement, partition by partition:

- the newest generation in which anybody was given the partition counts;
- one member that names it in that generation owns it;
- two or more that do are wrong, all of them, and it has no owner.

Partitions that do not exist, of topics that vanished or shrank, have no owner.

Source: Kafka's AbstractStickyAssignor. There a third claim of one partition may decide by the
order in which members come; here the order does not matter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from millrace.records import TopicPartition


class Claim(NamedTuple):
    """What one member says it was given, and in which generation; -1 when it does not say."""

    partitions: Sequence[TopicPartition]
    generation: int


@dataclass(frozen=True, slots=True)
class Ownership:
    """The verdict on all claims.

    `owners`: the member that holds a partition. `claimed`: partitions that any names, as keys; so
    `owners.keys() <= claimed.keys()`. `formers`: the holder of a partition in the newest generation
    that is older than the group's newest.
    """

    owners: dict[TopicPartition, str]
    claimed: dict[TopicPartition, int]
    formers: dict[TopicPartition, str]


def judge(partition_counts: Mapping[str, int], claims: Mapping[str, Claim]) -> Ownership:
    """The verdict on what each member claims of the topics in `partition_counts`."""
    owners: dict[TopicPartition, str] = {}
    claimed: dict[TopicPartition, int] = {}
    formers: dict[TopicPartition, str] = {}
    former_generations: dict[TopicPartition, int] = {}
    newest = max((claim.generation for claim in claims.values()), default=-1)
    for member_id in sorted(claims):
        claim = claims[member_id]
        generation = max(claim.generation, -1)
        for partition in dict.fromkeys(claim.partitions):
            if not 0 <= partition.partition < partition_counts.get(partition.topic, 0):
                continue
            known = claimed.get(partition)
            if known is None or generation > known:
                claimed[partition] = generation
                owners[partition] = member_id
            elif generation == known:
                owners.pop(partition, None)
            if generation < newest and generation > former_generations.get(partition, -2):
                former_generations[partition] = generation
                formers[partition] = member_id
    return Ownership(owners, claimed, formers)
