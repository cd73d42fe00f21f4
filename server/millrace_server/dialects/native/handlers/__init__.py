"""One file per api: a message to service calls, their answer to a message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace_protocol.api import ApiKey
from millrace_server.dialects.native.handlers import (
    acls,
    authenticate,
    client_quotas,
    configs,
    delete_records,
    elections,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    hello,
    leader_epochs,
    list_offsets,
    log_dirs,
    metadata,
    produce,
    producer_id,
    quorum,
    raft_voters,
    reassignments,
    retirement,
    split_ranges,
    statistics,
    topics,
    users,
)
from millrace_server.dialects.response_body import Handled
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

Handler = Callable[[Services, RequestContext, Any], Handled]

HANDLERS: dict[int, Handler] = {
    ApiKey.HELLO: hello.handle,
    ApiKey.METADATA: metadata.handle,
    ApiKey.PRODUCE: produce.handle,
    ApiKey.FETCH: fetch.handle,
    ApiKey.LIST_OFFSETS: list_offsets.handle,
    ApiKey.INIT_PRODUCER_ID: producer_id.handle,
    ApiKey.CREATE_TOPICS: topics.create,
    ApiKey.DELETE_TOPICS: topics.delete,
    ApiKey.CREATE_PARTITIONS: topics.add_partitions,
    ApiKey.DESCRIBE_CONFIGS: configs.describe,
    ApiKey.ALTER_CONFIGS: configs.alter,
    ApiKey.FIND_COORDINATOR: group_membership.find_coordinator,
    ApiKey.JOIN_GROUP: group_membership.join,
    ApiKey.SYNC_GROUP: group_membership.sync,
    ApiKey.HEARTBEAT: group_membership.heartbeat,
    ApiKey.LEAVE_GROUP: group_membership.leave,
    ApiKey.OFFSET_COMMIT: group_offsets.commit,
    ApiKey.OFFSET_FETCH: group_offsets.fetch,
    ApiKey.OFFSET_DELETE: group_offsets.delete,
    ApiKey.LIST_GROUPS: group_admin.list_groups,
    ApiKey.DESCRIBE_GROUPS: group_admin.describe,
    ApiKey.DELETE_GROUPS: group_admin.delete,
    ApiKey.DELETE_RECORDS: delete_records.handle,
    ApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: leader_epochs.handle,
    ApiKey.SPLIT_RANGES: split_ranges.handle,
    ApiKey.DESCRIBE_STATISTICS: statistics.handle,
    ApiKey.DESCRIBE_QUORUM: quorum.describe,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: reassignments.alter,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: reassignments.list_,
    ApiKey.ELECT_LEADERS: elections.elect,
    ApiKey.RETIRE_BROKER: retirement.retire,
    ApiKey.ADD_RAFT_VOTER: raft_voters.add,
    ApiKey.REMOVE_RAFT_VOTER: raft_voters.remove,
    ApiKey.AUTHENTICATE: authenticate.handle,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter,
    ApiKey.DESCRIBE_ACLS: acls.describe,
    ApiKey.CREATE_ACLS: acls.create,
    ApiKey.DELETE_ACLS: acls.delete,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe,
    ApiKey.ALTER_CLIENT_QUOTAS: client_quotas.alter,
}
"""The apis of the listener for clients."""
