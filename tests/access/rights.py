"""What every request needs, written down once more beside the broker: the oracle of the matrix.

A request is for topic `TOPIC`, group `GROUP` or the cluster. It is allowed where one of its
alternatives is, and each alternative is a set of rights that are all needed.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from millrace_protocol.acls import Operation as Op
from millrace_protocol.acls import ResourceType as Kind

TOPIC, GROUP, CLUSTER = "matrix-topic", "matrix-group", "kafka-cluster"
NAMES = {Kind.TOPIC: TOPIC, Kind.GROUP: GROUP, Kind.CLUSTER: CLUSTER}
OPERATIONS = {
    Kind.TOPIC: "READ WRITE CREATE DELETE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS ALL",
    Kind.GROUP: "READ DELETE DESCRIBE ALL",
    Kind.CLUSTER: "CREATE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS IDEMPOTENT_WRITE ALL",
}


class Right(NamedTuple):
    """One operation on one resource."""

    operation: Op
    kind: Kind


def right(text: str) -> Right:
    """
    >>> right("READ topic")
    Right(operation=<Operation.READ: 3>, kind=<ResourceType.TOPIC: 2>)
    """
    operation, kind = text.split()
    return Right(Op[operation], Kind[kind.upper()])


RIGHTS = [right(f"{op} {kind.name}") for kind, ops in OPERATIONS.items() for op in ops.split()]
_IMPLY = {
    Op.DESCRIBE: {Op.READ, Op.WRITE, Op.DELETE, Op.ALTER},
    Op.DESCRIBE_CONFIGS: {Op.ALTER_CONFIGS},
}


def implied(held: Right) -> set[Right]:
    """The rights that come with one."""
    return {
        each
        for each in RIGHTS
        if each.kind is held.kind
        and (
            held.operation in (each.operation, Op.ALL)
            or held.operation in _IMPLY.get(each.operation, ())
        )
    }


def is_allowed(needs: str, held: Iterable[Right]) -> bool:
    """Whether rights suffice: `READ group + READ topic | ALL cluster`; empty: nothing is needed."""
    has = {each for one in held for each in implied(one)}
    return any(
        all(right(each.strip()) in has for each in alternative.split("+") if each.strip())
        for alternative in needs.split("|")
    )


NATIVE = {
    "Hello": "",
    "Authenticate": "",
    "Metadata": "DESCRIBE topic",
    "Produce": "WRITE topic",
    "Fetch": "READ topic",
    "ListOffsets": "DESCRIBE topic",
    "InitProducerId": "WRITE topic | IDEMPOTENT_WRITE cluster",
    "CreateTopics": "CREATE topic | CREATE cluster",
    "DeleteTopics": "DELETE topic",
    "CreatePartitions": "ALTER topic",
    "DescribeConfigs": "DESCRIBE_CONFIGS topic + DESCRIBE_CONFIGS cluster",
    "AlterConfigs": "ALTER_CONFIGS topic",
    "FindCoordinator": "DESCRIBE group",
    "JoinGroup": "READ group",
    "SyncGroup": "READ group",
    "Heartbeat": "READ group",
    "LeaveGroup": "READ group",
    "OffsetCommit": "READ group + READ topic",
    "OffsetFetch": "DESCRIBE group + DESCRIBE topic",
    "OffsetDelete": "DELETE group",
    "ListGroups": "DESCRIBE group | DESCRIBE cluster",
    "DescribeGroups": "DESCRIBE group",
    "DeleteGroups": "DELETE group",
    "DeleteRecords": "DELETE topic",
    "DescribeLogDirs": "DESCRIBE cluster",
    "OffsetForLeaderEpoch": "DESCRIBE topic",
    "SplitRanges": "READ topic",
    "DescribeStatistics": "DESCRIBE cluster",
    "DescribeQuorum": "DESCRIBE cluster",
    "AlterPartitionReassignments": "ALTER cluster",
    "ListPartitionReassignments": "DESCRIBE cluster",
    "ElectLeaders": "ALTER cluster",
    "RetireBroker": "ALTER cluster",
    "AddRaftVoter": "ALTER cluster",
    "RemoveRaftVoter": "ALTER cluster",
    "DescribeUserScramCredentials": "DESCRIBE cluster",
    "AlterUserScramCredentials": "ALTER cluster",
    "DescribeClientQuotas": "DESCRIBE_CONFIGS cluster",
    "AlterClientQuotas": "ALTER_CONFIGS cluster",
    "DescribeAcls": "DESCRIBE cluster",
    "CreateAcls": "ALTER cluster",
    "DeleteAcls": "ALTER cluster",
}
"""By the name of the api. ListGroups leaves out what may not be seen, and so does Metadata of all
topics. OffsetDelete needs READ of the topics as well, in a group that there is."""
KAFKA = {
    **{name: needs for name, needs in NATIVE.items() if name != "DescribeConfigs"},
    "ApiVersions": "",
    "SaslHandshake": "",
    "SaslAuthenticate": "",
    "DescribeConfigs": "DESCRIBE_CONFIGS topic",
    "ListGroups": "",
    "IncrementalAlterConfigs": "ALTER_CONFIGS topic",
    "DescribeCluster": "",
    "DescribeProducers": "READ topic",
    "ConsumerGroupDescribe": "",
    "DescribeTopicPartitions": "DESCRIBE topic",
}
"""ConsumerGroupDescribe gives the same answer to everyone: there are no such groups. Kafka's lists
refuse nothing."""
TEXT = {
    "HELP": "",
    "TOPICS": "",
    "GROUPS": "",
    f"DESCRIBE {TOPIC}": "DESCRIBE topic",
    f"CREATE {TOPIC} 0": "CREATE topic | CREATE cluster",
    f"PRODUCE {TOPIC} 0 value": "WRITE topic",
    f"PRODUCEKEY {TOPIC} 0 key value": "WRITE topic",
    f"FETCH {TOPIC} 0 0": "READ topic",
    f"OFFSETS {TOPIC}": "DESCRIBE topic",
    f"LAG {GROUP}": "DESCRIBE group",
    "STATS millrace_connections": "DESCRIBE cluster",
    f"TAIL {TOPIC} 0": "READ topic",
}
"""By the line that is typed. TOPICS, GROUPS and LAG leave out what may not be seen. DESCRIBE needs
DESCRIBE_CONFIGS as well, of a topic that there is."""
