"""One file for each group of apis: a message to service calls, their answer to a message.

A handler gets the version of the request, because later versions say some things differently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace_protocol.kafka.apis import KafkaApiKey
from millrace_server.dialects.kafka.context import KafkaContext
from millrace_server.dialects.kafka.handlers import (
    acls,
    active_producers,
    api_versions,
    client_quotas,
    configs,
    describe_cluster,
    fetch,
    group_admin,
    group_membership,
    group_offsets,
    list_offsets,
    log_dirs,
    metadata,
    partitions,
    produce,
    producer_id,
    quorum,
    replicas,
    sasl,
    topic_partitions,
    topics,
    users,
)
from millrace_server.dialects.response_body import Handled
from millrace_server.services.services import Services

Handler = Callable[[Services, KafkaContext, Any, int], Handled]

HANDLERS: dict[int, Handler] = {
    KafkaApiKey.PRODUCE: produce.handle,
    KafkaApiKey.FETCH: fetch.handle,
    KafkaApiKey.LIST_OFFSETS: list_offsets.handle,
    KafkaApiKey.METADATA: metadata.handle,
    KafkaApiKey.OFFSET_COMMIT: group_offsets.commit,
    KafkaApiKey.OFFSET_FETCH: group_offsets.fetch,
    KafkaApiKey.FIND_COORDINATOR: group_membership.find_coordinator,
    KafkaApiKey.JOIN_GROUP: group_membership.join,
    KafkaApiKey.HEARTBEAT: group_membership.heartbeat,
    KafkaApiKey.LEAVE_GROUP: group_membership.leave,
    KafkaApiKey.SYNC_GROUP: group_membership.sync,
    KafkaApiKey.DESCRIBE_GROUPS: group_admin.describe,
    KafkaApiKey.LIST_GROUPS: group_admin.list_groups,
    KafkaApiKey.SASL_HANDSHAKE: sasl.handshake,
    KafkaApiKey.API_VERSIONS: api_versions.handle,
    KafkaApiKey.CREATE_TOPICS: topics.create,
    KafkaApiKey.DELETE_TOPICS: topics.delete,
    KafkaApiKey.DELETE_RECORDS: partitions.delete,
    KafkaApiKey.INIT_PRODUCER_ID: producer_id.handle,
    KafkaApiKey.OFFSET_FOR_LEADER_EPOCH: partitions.epoch_ends,
    KafkaApiKey.DESCRIBE_ACLS: acls.describe,
    KafkaApiKey.CREATE_ACLS: acls.create,
    KafkaApiKey.DELETE_ACLS: acls.delete,
    KafkaApiKey.DESCRIBE_CLIENT_QUOTAS: client_quotas.describe,
    KafkaApiKey.ALTER_CLIENT_QUOTAS: client_quotas.alter,
    KafkaApiKey.DESCRIBE_CONFIGS: configs.describe,
    KafkaApiKey.ALTER_CONFIGS: configs.alter,
    KafkaApiKey.DESCRIBE_LOG_DIRS: log_dirs.handle,
    KafkaApiKey.SASL_AUTHENTICATE: sasl.authenticate,
    KafkaApiKey.CREATE_PARTITIONS: partitions.create,
    KafkaApiKey.DELETE_GROUPS: group_admin.delete,
    KafkaApiKey.ELECT_LEADERS: replicas.elect,
    KafkaApiKey.INCREMENTAL_ALTER_CONFIGS: configs.alter_incrementally,
    KafkaApiKey.ALTER_PARTITION_REASSIGNMENTS: replicas.reassign,
    KafkaApiKey.LIST_PARTITION_REASSIGNMENTS: replicas.list_reassignments,
    KafkaApiKey.OFFSET_DELETE: group_admin.delete_offsets,
    KafkaApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: users.describe,
    KafkaApiKey.ALTER_USER_SCRAM_CREDENTIALS: users.alter,
    KafkaApiKey.DESCRIBE_QUORUM: quorum.describe,
    KafkaApiKey.DESCRIBE_CLUSTER: describe_cluster.handle,
    KafkaApiKey.DESCRIBE_PRODUCERS: active_producers.handle,
    KafkaApiKey.CONSUMER_GROUP_DESCRIBE: group_admin.describe_consumer_groups,
    KafkaApiKey.DESCRIBE_TOPIC_PARTITIONS: topic_partitions.handle,
}
