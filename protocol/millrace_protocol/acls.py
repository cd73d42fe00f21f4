"""The words of access control: resources, patterns, operations, permissions (wire_spec.md W-9.5).

Numbers and names are Kafka's (KIP-11, KIP-290, `AclOperation`, `ResourceType`, `PatternType`).
"""

from __future__ import annotations

from enum import IntEnum

ANY_RESOURCE_NAME = "*"
"""As the name of a literal pattern: every resource of the type."""
CLUSTER_NAME = "kafka-cluster"
"""The name of the only resource of the type `CLUSTER`."""
ANY_PRINCIPAL = "User:*"
ANY_HOST = "*"


class ResourceType(IntEnum):
    """What an operation works on. `ANY` stands only in filters."""

    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    USER = 7


class PatternType(IntEnum):
    """How the name of an entry is compared. `ANY` and `MATCH` stand only in filters.

    `MATCH` is each pattern that a name matches, `ANY` each pattern of exactly that text.
    """

    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4


class Operation(IntEnum):
    """What a request does with a resource. `ANY` stands only in filters."""

    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class Permission(IntEnum):
    """Whether an entry allows or denies. `ANY` stands only in filters."""

    ANY = 1
    DENY = 2
    ALLOW = 3


OPERATIONS_OF: dict[ResourceType, frozenset[Operation]] = {
    ResourceType.TOPIC: frozenset(
        {
            Operation.READ,
            Operation.WRITE,
            Operation.CREATE,
            Operation.DELETE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
        }
    ),
    ResourceType.GROUP: frozenset({Operation.READ, Operation.DELETE, Operation.DESCRIBE}),
    ResourceType.CLUSTER: frozenset(
        {
            Operation.CREATE,
            Operation.ALTER,
            Operation.DESCRIBE,
            Operation.CLUSTER_ACTION,
            Operation.DESCRIBE_CONFIGS,
            Operation.ALTER_CONFIGS,
            Operation.IDEMPOTENT_WRITE,
        }
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset({Operation.WRITE, Operation.DESCRIBE}),
    ResourceType.USER: frozenset(),
}
"""The operations that there are on each type of resource, `ALL` aside."""
