"""The cluster's metadata on one broker: its log, its replica of the quorum, its image.

Owns the order of starting and stopping, and what a start finds on the disk: the identity of the
data directory, the newest snapshot, the voters, and how the last elections ended.

    load     the disk is read; other brokers may ask this one who it is
    join     the voters are known, and the replica takes part in the quorum
    close
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_hello import BrokerHelloRequest, BrokerHelloResponse
from millrace_protocol.metadata_records import NO_LEADER
from millrace_server.api_error import ApiError
from millrace_server.controller.active_controller import ActiveController
from millrace_server.controller.applier import MetadataApplier
from millrace_server.controller.metadata_publisher import MetadataPublisher
from millrace_server.controller.metadata_storage import open_metadata_log
from millrace_server.controller.replica_assigner import ReplicaAssigner, Report
from millrace_server.controller.snapshots import (
    SnapshotWriter,
    existing_path,
    find_snapshots,
    load_snapshot,
    read_snapshot,
    store_snapshot,
    write_snapshot,
)
from millrace_server.environment.seams import Environment
from millrace_server.log import PartitionLog
from millrace_server.log.checkpoint_file import read_file
from millrace_server.logs import get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.metadata.image import ClusterImage
from millrace_server.metadata.snapshot import TornSnapshot, decode_snapshot
from millrace_server.partitions.core_errors import as_api_error
from millrace_server.partitions.partition import Partition
from millrace_server.partitions.replica_hooks import ReplicaHooks
from millrace_server.peers.calls import Channel, PeerCalls, PeerUnreachable, refusal
from millrace_server.quorum.bootstrap import Address, find_voters
from millrace_server.quorum.exchange import QuorumExchange
from millrace_server.quorum.identity import (
    DirectoryIdentity,
    identity_missing,
    read_identity,
    write_identity,
)
from millrace_server.quorum.metadata_log import METADATA_TOPIC, MetadataLog
from millrace_server.quorum.replica import QuorumReplica
from millrace_server.quorum.snapshot_transfer import fetch_snapshot, part_of
from millrace_server.quorum.voter_records import voter_set, voters_record
from millrace_server.raft.config import RaftConfig
from millrace_server.raft.election_state import ELECTION_STATE_NAME, ElectionState
from millrace_server.raft.messages import Message, SnapshotId
from millrace_server.raft.node import RaftNode
from millrace_server.raft.voters import ReplicaKey, Voter, VoterHistory, VoterSet

log = get_logger("millrace.quorum")
LEADER_WAIT_MS = 10_000
"""How long a change of the metadata waits for a leader of the quorum."""
ASK_TIMEOUT_MS = 2_000
MakePartition = Callable[[str, int, PartitionLog, ReplicaHooks | None], Partition]


class ClusterMetadata:
    """`load`, `join` and `close` once each, in this order.

    `active` takes changes while this broker leads the quorum. `voters` is None until they are
    known.
    """

    def __init__(
        self,
        env: Environment,
        cache: MetadataCache,
        applier: MetadataApplier,
        peers: PeerCalls,
        *,
        node_id: int,
        members: Mapping[int, Address],
        snapshot_bytes: int,
        voters_wait_ms: int,
        make_partition: MakePartition,
        report: Report,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        """`members` are the addresses of the voters by broker id, none for a cluster of one."""
        self._env = env
        self._cache = cache
        self._applier = applier
        self._peers = peers
        self._node_id = node_id
        self._members = members
        self._snapshot_bytes = snapshot_bytes
        self._voters_wait_ms = voters_wait_ms
        self._make_partition = make_partition
        self._assigner = ReplicaAssigner(env, report, applier)
        self._on_failure = on_failure
        self.active = ActiveController(cache, env, leader_wait_ms=LEADER_WAIT_MS)
        self.exchange = QuorumExchange(env, peers)
        self.identity: DirectoryIdentity
        self.voters: VoterSet | None = None
        self.has_joined = False
        """Whether `join` has started the replica of the quorum."""

    @property
    def image(self) -> ClusterImage:
        """The metadata in force on this broker."""
        return self._cache.image

    @property
    def leader_id(self) -> int | None:
        """The broker that is the active controller, None if none is known."""
        return self.replica.leader_id if self.has_joined else None

    def check_room(self) -> None:
        """Raises `ApiError` while the quorum's replica here waits for room on the disk."""
        if self.has_joined and self.replica.refusal is not None:
            raise as_api_error(self.replica.refusal) from self.replica.refusal

    @property
    def key(self) -> ReplicaKey:
        """The identity of this broker's replica."""
        return ReplicaKey(self._node_id, self.identity.directory_id)

    @property
    def cluster_id(self) -> uuid.UUID | None:
        """The cluster that this broker belongs to, None if it knows none yet."""
        return self._cache.image.cluster_id or self.identity.cluster_id

    def address_of(self, broker_id: int) -> Address | None:
        """Where a broker listens for others, as far as that is known.

        The configuration comes first: voters that have moved to other addresses could not tell
        each other of that.
        """
        configured = self._members.get(broker_id)
        if configured is not None:
            return configured
        broker = self._cache.image.brokers.get(broker_id)
        if broker is not None and broker.broker_host:
            return broker.broker_host, broker.broker_port
        voters = () if self.voters is None else self.voters.voters
        known = ((v.host, v.port) for v in voters if v.key.broker_id == broker_id and v.host)
        return next(known, None)

    def hello(self, broker_id: int) -> BrokerHelloRequest:
        """How this broker introduces itself to another one."""
        cluster_id = self.cluster_id
        return BrokerHelloRequest(
            *self.key, None if cluster_id is None else str(cluster_id), broker_id
        )

    async def load(self) -> Partition:
        """Opens the log and reads what is on the disk; returns the log's partition.

        Raises `ApiError`, `OSError`, `CorruptLog` and `UnreadableMetadata`.
        """
        env = self._env
        opened = await env.spawn.blocking(
            open_metadata_log, env.disk, env.clock.wall_ms(), self._snapshot_bytes
        )
        partition = self._make_partition(METADATA_TOPIC, 0, opened, _MetadataHooks(self))
        try:
            self.log = MetadataLog(partition, env.clock, ())
            await self.log.follow(self.log.leader_epoch, NO_LEADER)
            self._history = await env.spawn.blocking(self._read)
            snapshot = self.log.newest_snapshot()
            is_behind = snapshot is not None and snapshot.end_offset > self.log.end_offset
            if snapshot is not None and is_behind and len(self._history.latest) > 1:
                # It was fetched from the leader, and the log was not begun behind it.
                await self.log.begin_at(snapshot)
            # What a snapshot says is committed.
            self.log.advance_high_watermark(self._cache.image.end_offset)
        except (Exception, asyncio.CancelledError):
            await partition.abandon()
            raise
        if self._history.latest.voters:
            self.voters = self._history.latest
        return partition

    async def join(self) -> None:
        """Finds the voters of a new cluster, and starts the replica. Raises as `load`."""
        env = self._env
        if len(self._members) > 1:
            brokers = ", ".join(map(str, self._members))
            log.info("waiting for the metadata quorum", brokers=brokers)
        image = self._cache.image
        are_recorded = bool(self._history.changes or (image.voters and image.end_offset))
        if self.voters is None:
            await self._find_voters()
        state = await env.spawn.blocking(self._election_state)
        node = RaftNode(self.key, self.log, self._history, state, RaftConfig(), env.rng.randrange)
        snapshots = SnapshotWriter(env, self.log, bytes_between=self._snapshot_bytes)
        self._snapshots = snapshots
        self.replica = QuorumReplica(
            node,
            self.log,
            env,
            self,
            self,
            are_voters_recorded=are_recorded,
            on_failure=self._on_failure,
        )
        self.publisher = MetadataPublisher(
            self.log,
            self._cache,
            self._applier,
            self._assigner,
            snapshots,
            env,
            on_failure=self._on_failure,
        )
        if node.replica.voters.keys == (self.key,):
            # What the only voter has on its disk is committed.
            self.log.advance_high_watermark(self.log.durable_offset)
        await env.spawn.blocking(self.publisher.load)
        self.active.attach(self.log, self.replica, self.publisher)
        self.has_joined = True
        self.publisher.start()
        self.replica.start()
        self.exchange.attach(self.replica)

    async def close(self) -> None:
        """Ends what `join` has started, if it has; the caller shuts the partition of the log."""
        if not self.has_joined:
            await self.exchange.close()
            return
        await self.active.close()
        await self.publisher.close(ApiError(ErrorCode.BROKER_STOPPING))
        await self._assigner.close()
        await self.replica.stop()
        await self.exchange.close()
        await self._snapshots.close()

    async def note_cluster(self) -> None:
        """Makes durable to which cluster the data directory belongs, once that is known."""
        cluster_id = self._cache.image.cluster_id
        if cluster_id is not None and self.identity.cluster_id is None:
            self.identity = replace(self.identity, cluster_id=cluster_id)
            await self._env.spawn.blocking(write_identity, self._env.disk, self.identity)

    # What the replica calls

    def on_committed(self, offset: int) -> None:
        """The quorum has committed more."""
        self.publisher.on_committed()

    def on_leader_changed(self) -> None:
        """The quorum has another leader."""
        self.active.on_leader_changed()

    def send(self, message: Message) -> None:
        """See `replica.Transport`."""
        self.exchange.send(message)

    async def fetch_snapshot(self, leader_id: int, snapshot: SnapshotId) -> bool:
        """See `replica.Transport`."""
        try:
            data = await fetch_snapshot(self._peers, leader_id, snapshot)
            image = decode_snapshot(data, end_offset=snapshot.end_offset)
        except (ApiError, PeerUnreachable, TornSnapshot):
            return False
        del image
        await self._env.spawn.blocking(
            store_snapshot, self._env.disk, self.log.directory, snapshot, data
        )
        return True

    async def install_snapshot(self, snapshot: SnapshotId) -> VoterSet:
        """See `replica.Transport`."""
        disk, directory = self._env.disk, self.log.directory
        image = await self._env.spawn.blocking(read_snapshot, disk, directory, snapshot)
        await self.log.begin_at(snapshot)
        await self.publisher.install(image)
        self.log.note_snapshots(find_snapshots(disk, directory))
        return voter_set(image.voters)

    async def read_snapshot(
        self, snapshot: SnapshotId, *, position: int, max_bytes: int
    ) -> tuple[int, bytes]:
        """The size of a snapshot, and its bytes from `position` on. Raises `ApiError`."""
        disk, directory = self._env.disk, self.log.directory

        def read() -> tuple[int, bytes]:
            path = existing_path(disk, directory, snapshot)
            return part_of(
                snapshot, lambda: read_file(disk, path), position=position, max_bytes=max_bytes
            )

        return await self._env.spawn.blocking(read)

    def on_stored(self) -> None:
        """More of the log is on the disk."""
        if self.has_joined:
            self.replica.on_durable()

    # What a start reads

    def _read(self) -> VoterHistory:
        """Identity, image and voters. Blocking."""
        disk = self._env.disk
        self._cache.image = image = load_snapshot(disk, self.log.directory)
        self.log.note_snapshots(find_snapshots(disk, self.log.directory))
        history = VoterHistory(voter_set(image.voters))
        for offset, voters in self.log.voter_sets():
            if offset >= image.end_offset:
                history = history.add(offset, voters)
        self.identity = self._load_identity(image, history.latest)
        return history

    async def _find_voters(self) -> None:
        address = self._members.get(self._node_id, ("", 0))
        own = Voter(self.key, *address)
        voters = VoterSet.of([own])
        if len(self._members) > 1 or (self._members and self._node_id not in self._members):
            voters = await find_voters(
                own, self._members, self._ask, self._env.clock, timeout_ms=self._voters_wait_ms
            )
            await self._env.spawn.blocking(self._store_voters, voters)
        self._history = VoterHistory(voters)
        self.voters = voters

    def _store_voters(self, voters: VoterSet) -> None:
        """Makes the voters durable, as a snapshot of a log without records. Blocking."""
        image = replace(self._cache.image, voters=voters_record(voters).voters)
        disk, now_ms = self._env.disk, self._env.clock.wall_ms()
        kept = write_snapshot(disk, self.log.directory, image, epoch=0, now_ms=now_ms)
        self._cache.image = image
        self.log.note_snapshots(kept)

    async def _ask(self, broker_id: int) -> BrokerHelloResponse:
        answer = await self._peers.call(
            broker_id,
            Channel.CONTROL,
            self.hello(broker_id),
            BrokerHelloResponse,
            timeout_ms=ASK_TIMEOUT_MS,
        )
        if answer.error_code != ErrorCode.NONE:
            raise refusal(answer.error_code, answer.error_message)
        return answer

    def _election_state(self) -> ElectionState:
        data = read_file(self._env.disk, f"{self.log.directory}/{ELECTION_STATE_NAME}")
        state = None if data is None else ElectionState.decode(data)
        epoch = max(0, self.log.leader_epoch)
        if state is None or state.epoch < epoch:
            return ElectionState(epoch)
        return state

    def _load_identity(self, image: ClusterImage, voters: VoterSet) -> DirectoryIdentity:
        found = read_identity(self._env.disk)
        if found is not None:
            found.check_node(self._node_id)
            return found
        if voters.key_of(self._node_id) is not None:
            # Its votes may be gone as well.
            raise identity_missing()
        known = image.brokers.get(self._node_id)
        made = uuid.UUID(int=self._env.rng.getrandbits(128), version=4)
        directory_id = made if known is None else known.directory_ids[0]
        identity = DirectoryIdentity(self._node_id, directory_id, image.cluster_id)
        write_identity(self._env.disk, identity)
        return identity


class _MetadataHooks:
    """The quorum decides what of the metadata log is committed."""

    def __init__(self, metadata: ClusterMetadata) -> None:
        self._metadata = metadata

    def check_append(self) -> None:
        """Clients cannot append."""

    def check_end_known(self) -> None:
        """Clients cannot read."""

    def on_appended(self) -> None:
        """The controller tells the replica itself."""

    def on_start_moved(self) -> None:
        """Each replica deletes what is before its own snapshots."""

    def on_start_durable(self) -> None:
        """The leader need not know."""

    def deleted(self, offset: int) -> asyncio.Future[None]:
        """Clients cannot delete. Raises `ApiError`."""
        raise ApiError(ErrorCode.INVALID_TOPIC_EXCEPTION)

    def on_stored(self) -> None:
        """See `ReplicaHooks`."""
        self._metadata.on_stored()
