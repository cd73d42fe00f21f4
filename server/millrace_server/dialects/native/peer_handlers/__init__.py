"""The apis of the listener for brokers: one file per noun, as in `handlers`."""

from __future__ import annotations

from millrace_protocol.api import ApiKey
from millrace_server.dialects.native.handlers import (
    Handler,
    acls,
    client_quotas,
    configs,
    elections,
    raft_voters,
    reassignments,
    retirement,
    topics,
    users,
)
from millrace_server.dialects.native.handlers import quorum as quorum_for_clients
from millrace_server.dialects.native.peer_handlers import (
    controller,
    hello,
    quorum,
    replica_fetch,
    replica_read,
)
from millrace_server.dialects.native.peer_handlers.introduction import introduced

PEER_HANDLERS: dict[int, Handler] = {
    ApiKey.HELLO: hello.handle,
    ApiKey.BROKER_HELLO: hello.introduce,
    ApiKey.VOTE: introduced(quorum.answer),
    ApiKey.BEGIN_QUORUM_EPOCH: introduced(quorum.answer),
    ApiKey.END_QUORUM_EPOCH: introduced(quorum.answer),
    ApiKey.QUORUM_FETCH: introduced(quorum.answer),
    ApiKey.FETCH_SNAPSHOT: introduced(quorum.fetch_snapshot),
    ApiKey.DESCRIBE_QUORUM: quorum_for_clients.describe,
    ApiKey.BROKER_REGISTRATION: introduced(controller.handle),
    ApiKey.BROKER_HEARTBEAT: introduced(controller.handle),
    ApiKey.ASSIGN_REPLICAS: introduced(controller.handle),
    ApiKey.ALLOCATE_PRODUCER_IDS: introduced(controller.handle),
    ApiKey.ALTER_PARTITION: introduced(controller.handle),
    ApiKey.REPLICA_FETCH: introduced(replica_fetch.handle),
    ApiKey.REPLICA_READ: introduced(replica_read.handle),
    ApiKey.CREATE_TOPICS: introduced(controller.passed_on(topics.create)),
    ApiKey.DELETE_TOPICS: introduced(controller.passed_on(topics.delete)),
    ApiKey.CREATE_PARTITIONS: introduced(controller.passed_on(topics.add_partitions)),
    ApiKey.ALTER_CONFIGS: introduced(controller.passed_on(configs.alter)),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: introduced(controller.passed_on(reassignments.alter)),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: introduced(controller.passed_on(reassignments.list_)),
    ApiKey.ELECT_LEADERS: introduced(controller.passed_on(elections.elect)),
    ApiKey.RETIRE_BROKER: introduced(controller.passed_on(retirement.retire)),
    ApiKey.ADD_RAFT_VOTER: introduced(controller.passed_on(raft_voters.add)),
    ApiKey.REMOVE_RAFT_VOTER: introduced(controller.passed_on(raft_voters.remove)),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: introduced(controller.passed_on(users.alter)),
    ApiKey.CREATE_ACLS: introduced(controller.passed_on(acls.create)),
    ApiKey.DELETE_ACLS: introduced(controller.passed_on(acls.delete)),
    ApiKey.ALTER_CLIENT_QUOTAS: introduced(controller.passed_on(client_quotas.alter)),
}
