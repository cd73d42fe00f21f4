"""The admin client without an event loop; it is `millrace.sync.Admin`."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import Literal, TypeVar, Unpack

from millrace import admin as _admin
from millrace._sync.blocking_client import BlockingClient
from millrace.acls import Acl, AclFilter
from millrace.admin import (
    Configs,
    ListedOffset,
    NewTopic,
    Piece,
    TopicDescription,
    TopicOutcome,
)
from millrace.brokers import (
    ClusterDescription,
    ConfigValue,
    LogDirectory,
    QuorumDescription,
    Reassignment,
    Retirement,
)
from millrace.config import ClientOptions, Servers
from millrace.groups import CommittedOffset, GroupDescription, GroupListing, Outcome
from millrace.quotas import Quota, QuotaEntity
from millrace.records import TopicPartition
from millrace.statistics import BrokerStatistics
from millrace.users import UserDescription
from millrace_protocol.scram import ITERATIONS_MIN

P = TypeVar("P", bound=tuple[str, int])


class Admin(BlockingClient):
    """`millrace.Admin` for synchronous code."""

    def __init__(
        self, servers: Servers = "localhost:9092", **options: Unpack[ClientOptions]
    ) -> None:
        """Checks the settings; raises `ConfigError`. Opens no connection yet."""
        self._admin = _admin.Admin(servers, **options)
        super().__init__(self._admin)

    def create_topic(
        self,
        name: str,
        *,
        partitions: int | None = None,
        replication_factor: int | None = None,
        configs: Configs | None = None,
    ) -> int:
        """Creates a topic; returns how many partitions it has."""
        return self._run(
            self._admin.create_topic(
                name, partitions=partitions, replication_factor=replication_factor, configs=configs
            )
        )

    def create_topics(
        self, topics: Iterable[NewTopic], *, validate_only: bool = False
    ) -> list[TopicOutcome[int]]:
        """Creates each topic for itself; the value is its number of partitions."""
        return self._run(self._admin.create_topics(topics, validate_only=validate_only))

    def delete_topic(self, name: str) -> None:
        """Deletes a topic with all its records."""
        self._run(self._admin.delete_topic(name))

    def delete_topics(self, names: Iterable[str]) -> list[TopicOutcome[bool]]:
        """Deletes topics with all their records."""
        return self._run(self._admin.delete_topics(names))

    def create_partitions(self, name: str, partitions: int) -> None:
        """Widens a topic to `partitions`."""
        self._run(self._admin.create_partitions(name, partitions))

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics, sorted."""
        return self._run(self._admin.list_topics(internal=internal))

    def describe_topic(self, name: str) -> TopicDescription:
        """One topic."""
        return self._run(self._admin.describe_topic(name))

    def describe_topics(self, names: Iterable[str]) -> list[TopicOutcome[TopicDescription]]:
        """The topics named, in this order."""
        return self._run(self._admin.describe_topics(names))

    def describe_configs(self, name: str) -> dict[str, ConfigValue]:
        """Every setting of a topic that is in force, by name."""
        return self._run(self._admin.describe_configs(name))

    def alter_configs(self, name: str, configs: Configs, *, validate_only: bool = False) -> None:
        """Changes settings of a topic, all or none; those not named stay."""
        self._run(self._admin.alter_configs(name, configs, validate_only=validate_only))

    def list_offsets(
        self, questions: Mapping[TopicPartition | tuple[str, int], str | int]
    ) -> dict[TopicPartition, ListedOffset]:
        """The offset for each partition: "earliest", "latest", "max_timestamp", or a time in ms."""
        return self._run(self._admin.list_offsets(questions))

    def split_ranges(
        self,
        ranges: Mapping[TopicPartition | tuple[str, int], tuple[int, int]],
        *,
        piece_bytes: int,
    ) -> dict[TopicPartition, list[Piece]]:
        """Cuts ranges `(start_offset, end_offset)` into pieces of about `piece_bytes`."""
        return self._run(self._admin.split_ranges(ranges, piece_bytes=piece_bytes))

    def delete_records(
        self, offsets: Mapping[TopicPartition | tuple[str, int], int | Literal["latest"]]
    ) -> dict[TopicPartition, Outcome[int]]:
        """Deletes the records before an offset, durably, in each partition for itself."""
        return self._run(self._admin.delete_records(offsets))

    # Brokers

    def describe_cluster(self) -> ClusterDescription:
        """The brokers in service, and one that takes changes."""
        return self._run(self._admin.describe_cluster())

    def describe_quorum(self) -> QuorumDescription:
        """The metadata quorum, and how far each replica has come."""
        return self._run(self._admin.describe_quorum())

    def add_voter(self, broker: int, *, directory_id: uuid.UUID | None = None) -> None:
        """Gives a broker a vote in the metadata quorum."""
        self._run(self._admin.add_voter(broker, directory_id=directory_id))

    def remove_voter(self, broker: int, *, directory_id: uuid.UUID | None = None) -> None:
        """Takes a broker's vote in the metadata quorum."""
        self._run(self._admin.remove_voter(broker, directory_id=directory_id))

    def describe_statistics(
        self, broker: int | None = None, *, prefix: str = ""
    ) -> BrokerStatistics:
        """What one broker has counted since it started."""
        return self._run(self._admin.describe_statistics(broker, prefix=prefix))

    def describe_broker_configs(self, broker: int | None = None) -> dict[str, ConfigValue]:
        """Every setting of one broker that is in force, by name; None asks any broker."""
        return self._run(self._admin.describe_broker_configs(broker))

    def describe_log_dirs(
        self, topics: Iterable[str] | None = None, *, broker: int | None = None
    ) -> list[LogDirectory]:
        """The data directories of all brokers or of one, with the sizes of their partitions."""
        return self._run(self._admin.describe_log_dirs(topics, broker=broker))

    # Replicas

    def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition | tuple[str, int], Iterable[int] | None],
        *,
        replace: bool = False,
    ) -> dict[TopicPartition, Outcome[bool]]:
        """Begins to move each partition to these brokers; None cancels a reassignment."""
        return self._run(self._admin.alter_partition_reassignments(replicas, replace=replace))

    def list_partition_reassignments(
        self, topics: Iterable[str] | None = None
    ) -> dict[TopicPartition, Reassignment]:
        """The reassignments in progress; None is all topics."""
        return self._run(self._admin.list_partition_reassignments(topics))

    def elect_leaders(
        self,
        partitions: Iterable[TopicPartition | tuple[str, int]] | None = None,
        *,
        unclean: bool = False,
    ) -> dict[TopicPartition, Outcome[int]]:
        """Elects the first replica of each partition as its leader; None: where it is not."""
        return self._run(self._admin.elect_leaders(partitions, unclean=unclean))

    def retire_broker(self, broker: int) -> Retirement:
        """Takes the next step of a broker's retirement; to be repeated until it is retired."""
        return self._run(self._admin.retire_broker(broker))

    # Users

    def list_users(self) -> dict[str, UserDescription]:
        """All users that have a password, by name."""
        return self._run(self._admin.list_users())

    def set_password(self, user: str, password: str, *, iterations: int = ITERATIONS_MIN) -> None:
        """Sets the password of a user; makes a new user."""
        self._run(self._admin.set_password(user, password, iterations=iterations))

    def delete_user(self, user: str) -> None:
        """Takes the passwords of a user away; its connections stay."""
        self._run(self._admin.delete_user(user))

    def create_acls(self, acls: Iterable[Acl]) -> dict[Acl, Outcome[bool]]:
        """Adds entries of access control, each for itself; one that there is stays."""
        return self._run(self._admin.create_acls(acls))

    def list_acls(self, chosen: AclFilter | None = None) -> list[Acl]:
        """The entries that a filter chooses, by default all, in the order of their creation."""
        return self._run(self._admin.list_acls(chosen))

    def delete_acls(self, filters: Iterable[AclFilter]) -> list[Acl]:
        """Removes the entries that one of the filters chooses, and returns them."""
        return self._run(self._admin.delete_acls(filters))

    def alter_quotas(
        self,
        changes: Mapping[QuotaEntity, Mapping[Quota, float | None]],
        *,
        validate_only: bool = False,
    ) -> dict[QuotaEntity, Outcome[bool]]:
        """Sets quotas, and removes those whose value is None, of each entity for itself."""
        return self._run(self._admin.alter_quotas(changes, validate_only=validate_only))

    def list_quotas(
        self, chosen: QuotaEntity | None = None
    ) -> dict[QuotaEntity, dict[Quota, float]]:
        """The quotas of all entities, or of those with the names of `chosen`."""
        return self._run(self._admin.list_quotas(chosen))

    # Groups

    def list_groups(self, *, states: Iterable[str] = ()) -> list[GroupListing]:
        """All groups, by name; only those in one of `states` if given."""
        return self._run(self._admin.list_groups(states=states))

    def describe_group(self, group: str) -> GroupDescription:
        """One group and its members."""
        return self._run(self._admin.describe_group(group))

    def describe_groups(self, groups: Iterable[str]) -> dict[str, Outcome[GroupDescription]]:
        """The groups named and their members, each for itself."""
        return self._run(self._admin.describe_groups(groups))

    def delete_group(self, group: str) -> None:
        """Forgets a group without members, and its offsets."""
        self._run(self._admin.delete_group(group))

    def delete_groups(self, groups: Iterable[str]) -> dict[str, Outcome[bool]]:
        """Forgets groups without members, and their offsets, each for itself."""
        return self._run(self._admin.delete_groups(groups))

    def list_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | tuple[str, int]] | None = None
    ) -> dict[TopicPartition, CommittedOffset]:
        """How far a group has come, in all partitions where it has committed, or in those named."""
        return self._run(self._admin.list_group_offsets(group, partitions))

    def alter_group_offsets(
        self, group: str, offsets: Mapping[P, int | tuple[int, str]]
    ) -> dict[TopicPartition, Outcome[int]]:
        """Takes a group without members elsewhere, each partition for itself."""
        return self._run(self._admin.alter_group_offsets(group, offsets))

    def delete_group_offsets(
        self, group: str, partitions: Iterable[TopicPartition | tuple[str, int]]
    ) -> dict[TopicPartition, Outcome[bool]]:
        """Forgets how far a group has come in partitions of topics that no member reads."""
        return self._run(self._admin.delete_group_offsets(group, partitions))
