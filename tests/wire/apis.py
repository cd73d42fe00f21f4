"""The apis of wire_spec.md W-4: key, request and response, as the tables there have them."""

from __future__ import annotations

from typing import NamedTuple

from tests.wire.layouts import Layout

_RESULT = "error_code int16, error_message string?"
_TOPIC_RESULTS = f"topics [name string, {_RESULT}]"
_TOPIC_CONFIG = "configs [name string, value string?]"
_CONFIGS = (
    "configs [name string, value string, is_default boolean, source string, "
    "is_read_only boolean, doc string]"
)
_REPLICAS = "assignments [replicas [int32]]"
_MEMBER = "generation int32, member_id string, instance_id string?"
_ACL = (
    "resource_type int8, pattern_type int8, resource_name string, principal string, host string, "
    "operation int8, permission int8"
)
_ACL_FILTER = (
    "resource_type int8, pattern_type int8, resource_name string?, principal string?, "
    "host string?, operation int8, permission int8"
)
_ENTITY = "entity [entity_type string, entity_name string?]"
_OFFSET_RESULTS = f"partitions [topic string, partition int32, {_RESULT}]"


class Api(NamedTuple):
    """One api in version 0."""

    key: int
    request: Layout
    response: Layout


def _api(key: int, request: str, response: str) -> Api:
    return Api(key, Layout(request), Layout(response))


APIS = {
    "Hello": _api(
        18,
        "software string, software_version string",
        "software string, software_version string, cluster_id string, node_id int32, "
        "frame_bytes_max int32, inflight_requests_max int32, "
        "apis [api int16, min_version int16, max_version int16]",
    ),
    "Metadata": _api(
        3,
        "topics [string ?]",
        "cluster_id string, controller_id int32, "
        "brokers [node_id int32, host string, port int32, rack string?], "
        f"topics [{_RESULT}, name string, topic_id uuid, is_internal boolean, "
        "partitions [error_code int16, partition int32, leader_id int32, leader_epoch int32, "
        "replicas [int32], isr [int32]]]",
    ),
    "Produce": _api(
        0,
        "acks int16, timeout_ms int32, partitions [topic string, partition int32, records bytes]",
        f"partitions [topic string, partition int32, {_RESULT}, base_offset int64, "
        "log_append_time_ms int64, log_start_offset int64]",
    ),
    "Fetch": _api(
        1,
        "max_wait_ms int32, min_bytes int32, max_bytes int32, partitions [topic string, "
        "partition int32, leader_epoch int32, fetch_offset int64, max_bytes int32], rack string?",
        f"partitions [topic string, partition int32, {_RESULT}, high_watermark int64, "
        "log_start_offset int64, preferred_replica int32, records bytes]",
    ),
    "ListOffsets": _api(
        2,
        "partitions [topic string, partition int32, timestamp_ms int64]",
        f"partitions [topic string, partition int32, {_RESULT}, timestamp_ms int64, "
        "offset int64, leader_epoch int32]",
    ),
    "InitProducerId": _api(
        22,
        "producer_id int64, producer_epoch int16",
        "producer_id int64, producer_epoch int16",
    ),
    "CreateTopics": _api(
        19,
        f"topics [name string, partitions int32, replication_factor int16, {_TOPIC_CONFIG}, "
        f"{_REPLICAS}], validate_only boolean",
        f"topics [name string, {_RESULT}, topic_id uuid, partitions int32, "
        "replication_factor int16]",
    ),
    "DeleteTopics": _api(20, "topics [string]", _TOPIC_RESULTS),
    "CreatePartitions": _api(
        37,
        f"topics [name string, partitions int32, {_REPLICAS}], validate_only boolean",
        _TOPIC_RESULTS,
    ),
    "DescribeConfigs": _api(
        32,
        "topics [string], brokers [int32]",
        f"topics [name string, {_RESULT}, {_CONFIGS}], brokers [node_id int32, {_RESULT}, "
        f"{_CONFIGS}]",
    ),
    "AlterConfigs": _api(
        44, f"topics [name string, {_TOPIC_CONFIG}], validate_only boolean", _TOPIC_RESULTS
    ),
    "FindCoordinator": _api(
        10,
        "groups [string]",
        f"coordinators [group string, {_RESULT}, node_id int32, host string, port int32]",
    ),
    "JoinGroup": _api(
        11,
        "group string, session_timeout_ms int32, rebalance_timeout_ms int32, member_id string, "
        "instance_id string?, protocol_type string, protocols [name string, metadata bytes], "
        "reason string?",
        "generation int32, protocol_type string?, protocol string?, leader string, "
        "member_id string, skip_assignment boolean, "
        "members [member_id string, instance_id string?, metadata bytes]",
    ),
    "SyncGroup": _api(
        14,
        f"group string, {_MEMBER}, protocol_type string?, protocol string?, "
        "assignments [member_id string, assignment bytes]",
        "protocol_type string?, protocol string?, assignment bytes",
    ),
    "Heartbeat": _api(12, f"group string, {_MEMBER}", ""),
    "LeaveGroup": _api(
        13,
        "group string, members [member_id string, instance_id string?, reason string?]",
        f"members [member_id string, instance_id string?, {_RESULT}]",
    ),
    "OffsetCommit": _api(
        8,
        f"group string, {_MEMBER}, partitions [topic string, partition int32, offset int64, "
        "leader_epoch int32, metadata string?]",
        _OFFSET_RESULTS,
    ),
    "OffsetFetch": _api(
        9,
        "group string, partitions [topic string, partition int32 ?]",
        f"partitions [topic string, partition int32, {_RESULT}, offset int64, "
        "leader_epoch int32, metadata string?, commit_time_ms int64]",
    ),
    "OffsetDelete": _api(
        47, "group string, partitions [topic string, partition int32]", _OFFSET_RESULTS
    ),
    "ListGroups": _api(
        16,
        "states [string]",
        "groups [group string, state string, protocol_type string, members int32]",
    ),
    "DescribeGroups": _api(
        15,
        "groups [string]",
        f"groups [group string, {_RESULT}, state string, generation int32, "
        "protocol_type string, protocol string, leader string, members [member_id string, "
        "instance_id string?, client_id string, client_host string, metadata bytes, "
        "assignment bytes]]",
    ),
    "DeleteGroups": _api(42, "groups [string]", f"groups [group string, {_RESULT}]"),
    "DeleteRecords": _api(
        21,
        "partitions [topic string, partition int32, offset int64]",
        f"partitions [topic string, partition int32, {_RESULT}, low_watermark int64]",
    ),
    "OffsetForLeaderEpoch": _api(
        23,
        "partitions [topic string, partition int32, current_leader_epoch int32, "
        "leader_epoch int32]",
        f"partitions [topic string, partition int32, {_RESULT}, leader_epoch int32, "
        "end_offset int64]",
    ),
    "DescribeLogDirs": _api(
        35,
        "topics [string ?]",
        f"node_id int32, log_dirs [path string, {_RESULT}, total_bytes int64, "
        f"usable_bytes int64, partitions [topic string, partition int32, {_RESULT}, "
        "size_bytes int64, offset_lag int64]]",
    ),
    "SplitRanges": _api(
        1000,
        "partitions [topic string, partition int32, start_offset int64, end_offset int64, "
        "piece_bytes int64]",
        f"partitions [topic string, partition int32, {_RESULT}, leader_epoch int32, "
        "pieces [end_offset int64, size_bytes int64]]",
    ),
    "Authenticate": _api(
        36,
        "mechanism string, auth_bytes bytes",
        "auth_bytes bytes, is_complete boolean, session_lifetime_ms int64",
    ),
    "DescribeUserScramCredentials": _api(
        50,
        "users [string ?]",
        f"users [user string, {_RESULT}, credentials [mechanism int8, iterations int32]]",
    ),
    "AlterUserScramCredentials": _api(
        51,
        "deletions [user string, mechanism int8], upsertions [user string, mechanism int8, "
        "iterations int32, salt bytes, salted_password bytes]",
        f"users [user string, {_RESULT}]",
    ),
    "DescribeClientQuotas": _api(
        48,
        "filters [entity_type string, match_type int8, match string?], strict boolean",
        f"entities [{_ENTITY}, values [key string, value float64]]",
    ),
    "AlterClientQuotas": _api(
        49,
        f"entities [{_ENTITY}, changes [key string, value float64, remove boolean]], "
        "validate_only boolean",
        f"results [{_RESULT}]",
    ),
    "DescribeAcls": _api(29, f"filters [{_ACL_FILTER}]", f"acls [{_ACL}]"),
    "CreateAcls": _api(30, f"acls [{_ACL}]", f"results [{_RESULT}]"),
    "DeleteAcls": _api(31, f"filters [{_ACL_FILTER}]", f"results [acls [{_ACL}]]"),
    "DescribeStatistics": _api(
        1001,
        "prefix string",
        "node_id int32, software_version string, uptime_ms int64, metrics [name string, "
        "kind string, unit string, decimals int16, help string, labels [string], "
        "bounds [int64], samples [labels [string], value int64, buckets [int64]]]",
    ),
    "AlterPartitionReassignments": _api(
        45,
        "partitions [topic string, partition int32, replicas [int32 ?]], may_replace boolean",
        f"partitions [topic string, partition int32, {_RESULT}]",
    ),
    "ListPartitionReassignments": _api(
        46,
        "topics [string ?]",
        "partitions [topic string, partition int32, replicas [int32], adding_replicas [int32], "
        "removing_replicas [int32], isr [int32]]",
    ),
    "ElectLeaders": _api(
        43,
        "partitions [topic string, partition int32 ?], is_unclean boolean",
        f"partitions [topic string, partition int32, {_RESULT}, leader_id int32]",
    ),
    "RetireBroker": _api(1002, "node_id int32", f"{_RESULT}, replicas int32, is_retired boolean"),
    "AddRaftVoter": _api(80, "node_id int32, directory_id uuid", _RESULT),
    "RemoveRaftVoter": _api(81, "node_id int32, directory_id uuid", _RESULT),
    "DescribeQuorum": _api(
        55,
        "",
        f"{_RESULT}, leader_id int32, leader_epoch int32, high_watermark int64, "
        "replicas [broker_id int32, directory_id uuid, is_voter boolean, end_offset int64, "
        "fetched_ms int64, caught_up_ms int64]",
    ),
}
REFUSAL = Layout("message string, min_version int16, max_version int16")
NAMES = {api.key: name for name, api in APIS.items()}
