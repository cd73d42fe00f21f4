"""Frames between the brokers of a cluster: the examples of wire_spec.md W-12.

They are made, not captured: what brokers tell each other depends on the moment. The cluster has
the brokers 1, 2 and 3. Broker 1 leads the metadata log in epoch 7, and broker 2 follows.
"""

from __future__ import annotations

import uuid

from millrace_protocol.api import APIS
from millrace_protocol.codec import encode
from millrace_protocol.errors import ErrorCode
from millrace_protocol.framing import request_frame, response_frame
from millrace_protocol.messages import (
    alter_partition,
    broker_hello,
    broker_lifecycle,
    quorum,
    replica_fetch,
    replica_read,
)
from millrace_protocol.records import BATCH_HEADER, encode_batch, read_header
from millrace_protocol.schema import Message
from millrace_protocol.spec.message_tables import slug

_CLUSTER_ID = "c94cb82e-3003-40d6-ae99-875ca22d0844"
_DIRECTORY_1, _DIRECTORY_2, _DIRECTORY_3 = (uuid.UUID(int=0xD1 + each) for each in range(3))
_TOPIC_ID = uuid.UUID("7ad8bdd8-486c-44f4-8728-f003cc00700f")
_INCARNATION_ID = uuid.UUID("0d1b7a56-3f5e-4c5c-9d3d-6f2f0a1c9b42")
_FOLLOWER = (2, _DIRECTORY_2, 7)
_LEADER = (_DIRECTORY_1, 7, 1)
_BROKER_2 = (2, 41)
_DONE = (ErrorCode.NONE, None)
_LEADER_EPOCH = 3


def _batch() -> bytes:
    """A batch as a leader has it in its log."""
    made = bytearray(encode_batch([b"/home"], timestamps_ms=1_760_000_000_000))
    header = read_header(made)
    header.partition_leader_epoch = _LEADER_EPOCH
    made[: BATCH_HEADER.sizeof()] = header.pack()
    return bytes(made)


_PAIRS: tuple[tuple[Message, Message], ...] = (
    (
        broker_hello.BrokerHelloRequest(2, _DIRECTORY_2, _CLUSTER_ID, 1),
        broker_hello.BrokerHelloResponse(
            *_DONE,
            1,
            _DIRECTORY_1,
            _CLUSTER_ID,
            (
                broker_hello.QuorumVoter(1, _DIRECTORY_1, "10.0.0.1", 9093),
                broker_hello.QuorumVoter(2, _DIRECTORY_2, "10.0.0.2", 9093),
                broker_hello.QuorumVoter(3, _DIRECTORY_3, "10.0.0.3", 9093),
            ),
        ),
    ),
    (
        quorum.VoteRequest(1, _DIRECTORY_1, 7, _DIRECTORY_2, 6, 120, is_pre_vote=False),
        quorum.VoteResponse(_DIRECTORY_2, 7, -1, is_granted=True),
    ),
    (
        quorum.BeginQuorumEpochRequest(1, _DIRECTORY_1, 7),
        quorum.BeginQuorumEpochResponse(_DIRECTORY_2, 7, 1),
    ),
    (
        quorum.EndQuorumEpochRequest(1, _DIRECTORY_1, 7, (2, 3)),
        quorum.EndQuorumEpochResponse(_DIRECTORY_2, 7, 1),
    ),
    (
        quorum.QuorumFetchRequest(*_FOLLOWER, 5, 120, 6, 118),
        quorum.QuorumFetchResponse(*_LEADER, ErrorCode.NONE, 5, 120, -1, -1, -1, -1, b""),
    ),
    (
        quorum.FetchSnapshotRequest(100, 6, 0, 1 << 20),
        quorum.FetchSnapshotResponse(*_DONE, 5, 0, b"bytes"),
    ),
    (
        broker_lifecycle.BrokerRegistrationRequest(
            2,
            _INCARNATION_ID,
            (_DIRECTORY_2,),
            (broker_lifecycle.ClientListener("plain", "10.0.0.2", 9092, False),),
            "10.0.0.2",
            9093,
            "eu-west-1a",
            previous_broker_epoch=17,
        ),
        broker_lifecycle.BrokerRegistrationResponse(*_DONE, 41),
    ),
    (
        broker_lifecycle.BrokerHeartbeatRequest(*_BROKER_2, 42, wants_shutdown=False),
        broker_lifecycle.BrokerHeartbeatResponse(*_DONE, True, False, False),
    ),
    (
        broker_lifecycle.AssignReplicasRequest(
            *_BROKER_2, _DIRECTORY_2, (broker_lifecycle.AssignedReplica(_TOPIC_ID, 0),)
        ),
        broker_lifecycle.AssignReplicasResponse(*_DONE),
    ),
    (
        broker_lifecycle.AllocateProducerIdsRequest(*_BROKER_2, 0),
        broker_lifecycle.AllocateProducerIdsResponse(*_DONE, 3_000, 1_000),
    ),
    (
        alter_partition.AlterPartitionRequest(
            *_BROKER_2,
            (
                alter_partition.AlteredPartition(
                    _TOPIC_ID,
                    0,
                    _LEADER_EPOCH,
                    8,
                    (alter_partition.IsrMember(2, 41), alter_partition.IsrMember(3, 39)),
                ),
            ),
        ),
        alter_partition.AlterPartitionResponse(
            *_DONE,
            (
                alter_partition.AlteredPartitionResult(
                    _TOPIC_ID, 0, *_DONE, 2, _LEADER_EPOCH, 9, (2, 3)
                ),
            ),
        ),
    ),
    (
        replica_fetch.ReplicaFetchRequest(
            *_BROKER_2,
            True,
            500,
            1 << 20,
            (replica_fetch.ReplicaFetchPartition(_TOPIC_ID, 0, _LEADER_EPOCH, 0, -1, 0),),
            (replica_fetch.ForgottenPartition(_TOPIC_ID, 1),),
        ),
        replica_fetch.ReplicaFetchResponse(
            *_DONE,
            (
                replica_fetch.ReplicaFetchPartitionResult(
                    _TOPIC_ID, 0, *_DONE, 0, 0, -1, -1, _batch()
                ),
            ),
        ),
    ),
    (
        replica_read.ReplicaReadRequest(_TOPIC_ID, 0, 0, len(_batch())),
        replica_read.ReplicaReadResponse(*_DONE, _batch()),
    ),
)


def _frames() -> dict[str, bytes]:
    frames = {}
    apis = {api.request: api for api in APIS.values()}
    for number, (request, response) in enumerate(_PAIRS, 1):
        api = apis[type(request)]
        ids = {"api": api.key, "version": api.max_version, "correlation_id": number}
        frames[f"{slug(api.key)}-request"] = request_frame(
            **ids, client_id=b"broker", body=encode(request, api.max_version)
        )
        frames[f"{slug(api.key)}-response"] = response_frame(
            **ids, body=encode(response, api.max_version)
        )
    return frames


BROKER_EXAMPLES = _frames()
"""Whole frames by name: `vote-request`, `vote-response`, ..."""
