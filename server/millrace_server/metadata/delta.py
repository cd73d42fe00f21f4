"""The delta: what the records that follow an image change in it.

Owns the meaning of each record. A start and normal running replay the same records by the same
code, so both give the same image. The image before the delta stays as it is.

    image ──► Delta(image) ──► replay(record) ... ──► image(end_offset)
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TypeVar

from millrace_protocol.metadata_records import (
    LEADER_UNCHANGED,
    NO_LEADER,
    AccessControlEntryRecord,
    BrokerRegistrationChangeRecord,
    ClientQuotaRecord,
    ClusterRecord,
    ConfigRecord,
    LeaderChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisteredListener,
    RemoveAccessControlEntryRecord,
    RemovedTopicsRecord,
    RemoveScramCredentialRecord,
    RemoveTopicRecord,
    ScramCredentialRecord,
    ScramSecretRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    VotersRecord,
)
from millrace_protocol.scram import ScramCredential, ScramMechanism
from millrace_server.api_error import ApiError
from millrace_server.listeners import PLAIN
from millrace_server.metadata.acls import AclEntry, AclSet, entry_of
from millrace_server.metadata.client_quotas import NO_QUOTAS, Entity, QuotaSet
from millrace_server.metadata.image import (
    BrokerRegistration,
    ClusterImage,
    PartitionRegistration,
    Topic,
)
from millrace_server.metadata.records import UnreadableMetadata

T = TypeVar("T")
FEATURE_LEVEL = 1
"""The rules that this broker knows."""
REMOVED_TOPICS_MAX = 10_000
"""Deleted topics whose ids are remembered. A directory of an older one, which a broker could not
remove in all that time, is left alone."""


@dataclass(slots=True)
class _TopicDelta:
    """A topic while records change it: each is replayed in constant time."""

    name: str
    topic_id: uuid.UUID
    partitions: list[PartitionRegistration]
    configs: dict[str, str]

    @classmethod
    def of(cls, topic: Topic) -> _TopicDelta:
        return cls(topic.name, topic.topic_id, list(topic.partitions), dict(topic.configs))

    def topic(self) -> Topic:
        return Topic(
            self.name, self.topic_id, tuple(self.partitions), MappingProxyType(self.configs)
        )


class Delta:
    """Records that follow the image `before`."""

    def __init__(self, before: ClusterImage) -> None:
        self.before = before
        self._cluster_id = before.cluster_id
        self._feature_level = before.feature_level
        self._next_producer_id = before.next_producer_id
        self._voters = before.voters
        self._acls: dict[AclEntry, None] | None = None
        self._credentials: dict[str, dict[ScramMechanism, ScramCredential]] = {}
        """Of each user that the records touch, what they leave."""
        self._scram_secret = before.scram_secret
        self._quotas: dict[Entity, Mapping[str, float]] | None = None
        self._brokers = dict(before.brokers)
        self._topics: dict[uuid.UUID, _TopicDelta] = {}
        self._created: dict[str, uuid.UUID] = {}
        self._removed: dict[uuid.UUID, None] = {}

    @property
    def changed(self) -> list[uuid.UUID]:
        """The topics that the records touch and that exist behind them."""
        return [topic_id for topic_id in self._topics if topic_id not in self._removed]

    @property
    def removed(self) -> list[uuid.UUID]:
        """The topics that the records remove."""
        return list(self._removed)

    def image(self, end_offset: int) -> ClusterImage:
        """The image behind the records replayed; `end_offset` is where the log goes on."""
        before = self.before
        topics, names, removed = before.topics, before.names, before.removed
        if self._topics or self._removed:
            new_topics, new_names = dict(topics), dict(names)
            for topic_id in self._removed:
                name = new_names.pop(topic_id, None)
                if name is not None:
                    del new_topics[name]
            for topic_id in self.changed:
                topic = self._topics[topic_id].topic()
                new_topics[topic.name] = topic
                new_names[topic_id] = topic.name
            topics, names = MappingProxyType(new_topics), MappingProxyType(new_names)
        if self._removed:
            all_removed = [*(i for i in removed if i not in self._removed), *self._removed]
            removed = MappingProxyType(dict.fromkeys(all_removed[-REMOVED_TOPICS_MAX:]))
        return ClusterImage(
            end_offset,
            self._cluster_id,
            self._feature_level,
            MappingProxyType(self._brokers),
            topics,
            names,
            removed,
            self._next_producer_id,
            self._voters,
            before.acls if self._acls is None else AclSet(self._acls),
            self._users(),
            self._scram_secret,
            before.quotas if self._quotas is None else QuotaSet(MappingProxyType(self._quotas)),
        )

    def replay(self, record: MetadataRecord) -> None:
        """Takes the next record of the log. Raises `UnreadableMetadata` when it cannot follow."""
        match record:
            case ClusterRecord():
                self._replay_cluster(record)
            case RegisterBrokerRecord():
                self._replay_register(record)
            case BrokerRegistrationChangeRecord():
                self._replay_registration_change(record)
            case TopicRecord():
                self._replay_topic(record)
            case PartitionRecord():
                self._replay_partition(record)
            case PartitionChangeRecord():
                self._replay_partition_change(record)
            case ConfigRecord():
                self._replay_config(record)
            case RemoveTopicRecord():
                removed = self._topic(record.topic_id)
                self._created.pop(removed.name, None)
                self._removed[record.topic_id] = None
            case RemovedTopicsRecord():
                self._removed.update(dict.fromkeys(record.topic_ids))
            case ProducerIdsRecord():
                self._next_producer_id = record.next_producer_id
            case UnregisterBrokerRecord():
                del self._brokers[self._registered(record.broker_id, record.broker_epoch).broker_id]
            case VotersRecord():
                self._voters = record.voters
            case AccessControlEntryRecord():
                self._changed_acls()[_entry(record)] = None
            case RemoveAccessControlEntryRecord():
                self._changed_acls().pop(_entry(record), None)
            case ScramCredentialRecord():
                self._replay_credential(record)
            case RemoveScramCredentialRecord():
                self._replay_credential_removal(record)
            case ScramSecretRecord():
                self._scram_secret = record.secret
            case ClientQuotaRecord():
                self._replay_quota(record)
            case LeaderChangeRecord():
                pass
            case _:
                raise UnreadableMetadata(f"a {type(record).__name__} is inside the log")

    def _replay_cluster(self, record: ClusterRecord) -> None:
        if record.feature_level > FEATURE_LEVEL:
            raise UnreadableMetadata(
                f"the cluster is at feature level {record.feature_level} and this broker knows "
                f"{FEATURE_LEVEL}: a newer millrace wrote this data directory; start that one"
            )
        self._cluster_id = record.cluster_id
        self._feature_level = record.feature_level

    def _replay_register(self, record: RegisterBrokerRecord) -> None:
        self._brokers[record.broker_id] = BrokerRegistration(
            record.broker_id,
            record.broker_epoch,
            record.incarnation_id,
            record.listeners or (RegisteredListener(PLAIN, record.host, record.port, False),),
            record.rack,
            record.directory_ids,
            is_fenced=True,
            broker_host=record.broker_host,
            broker_port=record.broker_port,
        )

    def _replay_registration_change(self, record: BrokerRegistrationChangeRecord) -> None:
        broker = self._registered(record.broker_id, record.broker_epoch)
        self._brokers[record.broker_id] = replace(
            broker,
            is_fenced=record.is_fenced,
            in_controlled_shutdown=record.in_controlled_shutdown,
        )

    def _registered(self, broker_id: int, broker_epoch: int) -> BrokerRegistration:
        broker = self._brokers.get(broker_id)
        if broker is None or broker.epoch != broker_epoch:
            raise UnreadableMetadata(
                f"a record changes broker {broker_id} of epoch {broker_epoch}, which is not "
                "registered"
            )
        return broker

    def _replay_topic(self, record: TopicRecord) -> None:
        known = self.before.topics.get(record.name)
        is_taken = record.name in self._created or (
            known is not None and known.topic_id not in self._removed
        )
        if is_taken or record.topic_id in self.before.names or record.topic_id in self._topics:
            raise UnreadableMetadata(f"topic {record.name!r} is created twice")
        self._created[record.name] = record.topic_id
        self._topics[record.topic_id] = _TopicDelta(record.name, record.topic_id, [], {})

    def _replay_partition(self, record: PartitionRecord) -> None:
        topic = self._topic(record.topic_id)
        if record.partition != len(topic.partitions):
            raise UnreadableMetadata(
                f"partition {record.partition} of topic {topic.name!r} is created and "
                f"{len(topic.partitions)} is the next one"
            )
        added = PartitionRegistration(
            record.replicas,
            record.isr,
            record.leader,
            record.leader_epoch,
            record.partition_epoch,
            record.directory_ids,
            record.elr,
            record.last_known_elr,
            record.adding_replicas,
            record.removing_replicas,
            record.loss_epoch,
        )
        _check_directories(topic, record.partition, added)
        topic.partitions.append(added)

    def _replay_partition_change(self, record: PartitionChangeRecord) -> None:
        topic = self._topic(record.topic_id)
        if not 0 <= record.partition < len(topic.partitions):
            raise UnreadableMetadata(
                f"a record changes partition {record.partition} of topic {topic.name!r}, which "
                "does not exist"
            )
        old = topic.partitions[record.partition]
        is_led_anew = record.leader != LEADER_UNCHANGED
        is_loss = is_led_anew and record.leader not in (NO_LEADER, *old.isr, *old.elr)
        changed = PartitionRegistration(
            _either(record.replicas, old.replicas),
            _either(record.isr, old.isr),
            record.leader if is_led_anew else old.leader,
            old.leader_epoch + is_led_anew,
            old.partition_epoch + 1,
            _either(record.directory_ids, old.directory_ids),
            _either(record.elr, old.elr),
            _either(record.last_known_elr, old.last_known_elr),
            _either(record.adding_replicas, old.adding),
            _either(record.removing_replicas, old.removing),
            old.leader_epoch + 1 if is_loss else old.loss_epoch,
        )
        _check_directories(topic, record.partition, changed)
        topic.partitions[record.partition] = changed

    def _replay_config(self, record: ConfigRecord) -> None:
        configs = self._topic(record.topic_id).configs
        if record.value is None:
            configs.pop(record.name, None)
        else:
            configs[record.name] = record.value

    def _changed_acls(self) -> dict[AclEntry, None]:
        if self._acls is None:
            self._acls = dict(self.before.acls.entries)
        return self._acls

    def _users(self) -> Mapping[str, Mapping[ScramMechanism, ScramCredential]]:
        if not self._credentials:
            return self.before.users
        users = {**self.before.users, **self._credentials}
        return MappingProxyType({name: kept for name, kept in users.items() if kept})

    def _credentials_of(self, user: str) -> dict[ScramMechanism, ScramCredential]:
        found = self._credentials.get(user)
        if found is None:
            found = self._credentials[user] = dict(self.before.users.get(user, {}))
        return found

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        entity = tuple((each.entity_type, each.entity_name) for each in record.entity)
        if self._quotas is None:
            self._quotas = dict(self.before.quotas.entities)
        values = {**self._quotas.pop(entity, NO_QUOTAS)}
        if record.is_removed:
            values.pop(record.key, None)
        else:
            values[record.key] = record.value
        if values:
            self._quotas[entity] = MappingProxyType(values)

    def _replay_credential(self, record: ScramCredentialRecord) -> None:
        mechanism = _mechanism(record.mechanism)
        self._credentials_of(record.user)[mechanism] = ScramCredential(
            mechanism, record.salt, record.stored_key, record.server_key, record.iterations
        )

    def _replay_credential_removal(self, record: RemoveScramCredentialRecord) -> None:
        left = self._credentials_of(record.user)
        if left.pop(_mechanism(record.mechanism), None) is None:
            raise UnreadableMetadata(
                f"a record removes a password of user {record.user!r}, which does not exist"
            )

    def _topic(self, topic_id: uuid.UUID) -> _TopicDelta:
        found = self._topics.get(topic_id)
        if found is None:
            before = self.before.topic_by_id(topic_id)
            if before is not None:
                found = self._topics[topic_id] = _TopicDelta.of(before)
        if found is None or topic_id in self._removed:
            raise UnreadableMetadata(f"a record changes topic {topic_id}, which does not exist")
        return found


def preview(image: ClusterImage, records: Iterable[MetadataRecord]) -> ClusterImage:
    """The image that the records would make; its end offset is that of `image`."""
    delta = Delta(image)
    for record in records:
        delta.replay(record)
    return delta.image(image.end_offset)


def _entry(record: AccessControlEntryRecord | RemoveAccessControlEntryRecord) -> AclEntry:
    try:
        return entry_of(
            (
                record.resource_type,
                record.pattern_type,
                record.name,
                record.principal,
                record.host,
                record.operation,
                record.permission,
            )
        )
    except ApiError as error:
        raise UnreadableMetadata(f"an entry of access control is not known: {error}") from error


def _mechanism(number: int) -> ScramMechanism:
    try:
        return ScramMechanism(number)
    except ValueError:
        raise UnreadableMetadata(f"a record names SASL mechanism {number}") from None


def _either(new: tuple[T, ...] | None, old: tuple[T, ...]) -> tuple[T, ...]:
    return old if new is None else new


def _check_directories(topic: _TopicDelta, number: int, partition: PartitionRegistration) -> None:
    if len(partition.directory_ids) != len(partition.replicas):
        raise UnreadableMetadata(
            f"partition {topic.name}-{number} has {len(partition.replicas)} replicas and "
            f"{len(partition.directory_ids)} directories"
        )
