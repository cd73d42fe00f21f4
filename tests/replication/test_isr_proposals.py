"""The ISRs that leaders ask the active controller for, and the counts of what it accepted."""

from __future__ import annotations

import asyncio
import uuid
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.alter_partition import (
    AlteredPartition,
    AlteredPartitionResult,
    AlterPartitionRequest,
    AlterPartitionResponse,
)
from millrace_protocol.schema import Message
from millrace_server.machine import LoopSpawn, this_machine
from millrace_server.replicas.isr_proposals import IsrProposals
from millrace_server.replicas.led_partition import LedPartition
from millrace_server.replication.config import ReplicationConfig
from millrace_server.replication.isr import PartitionState
from millrace_server.replication.leader import BrokerState, PartitionLeader
from millrace_server.replication.messages import BrokerKey, FetchPosition, PartitionKey
from tests.replication.replica_log import Entry, ReplicaLog

if TYPE_CHECKING:
    from millrace_server.controller.controller_calls import ControllerCalls
    from millrace_server.partitions.partition import Partition

CONFIG = ReplicationConfig()


class Controller:
    """Implements `ControllerCalls.call`: gives each partition of a request the same answer."""

    answer = ErrorCode.NONE
    is_complete = True
    """A response has a result for each partition."""

    async def call(self, request: Message, response: type[Any], *, timeout_ms: int) -> Any:
        assert isinstance(request, AlterPartitionRequest)
        asked = request.partitions if self.is_complete else ()
        return AlterPartitionResponse(ErrorCode.NONE, None, tuple(map(self._result, asked)))

    def _result(self, asked: AlteredPartition) -> AlteredPartitionResult:
        isr = tuple(member.broker_id for member in asked.isr)
        key = (asked.topic_id, asked.partition)
        if self.answer == ErrorCode.NONE:
            epochs = (asked.leader_epoch, asked.partition_epoch + 1)
            return AlteredPartitionResult(*key, ErrorCode.NONE, None, 1, *epochs, isr)
        return AlteredPartitionResult(*key, self.answer, "no", -1, -1, -1, ())


class Leading:
    """Broker 1 leads a partition with one record that no follower has fetched."""

    def __init__(self, path: Path, replicas: tuple[int, ...], isr: tuple[int, ...]) -> None:
        self.controller = Controller()
        self._spawn = LoopSpawn()
        env = this_machine(path, self._spawn)
        self._clock = env.clock
        self._ended: asyncio.Queue[LedPartition] = asyncio.Queue()
        self.failed: asyncio.Future[BaseException] = asyncio.get_running_loop().create_future()
        self.proposals = IsrProposals(
            env,
            cast("ControllerCalls", self.controller),
            broker_id=1,
            broker_epoch=lambda: 1,
            on_ended=self._ended.put_nowait,
            on_failure=self.failed.set_result,
        )
        log = ReplicaLog(is_synced=True)
        log.append(Entry(0, "value"))
        log.begin_epoch(2)
        log.recover()
        self.core = PartitionLeader(
            1,
            log,
            PartitionState(2, 1, replicas, isr, 1),
            {number: BrokerState(1, may_join_isr=True) for number in replicas},
            CONFIG,
            high_watermark=0,
            now_ms=self._clock.monotonic_ms(),
        )
        self._led = LedPartition(
            PartitionKey(uuid.UUID(int=1), 0),
            cast("Partition", _PARTITION),
            self.core,
            self._clock,
            propose=self.proposals.propose,
            on_appended=lambda led: None,
            on_offsets_moved=lambda led: None,
        )

    async def fetched(self, broker_id: int) -> None:
        """A follower has the record: the outcome of what the leader then proposes."""
        self.propose_to_admit(broker_id)
        await self._ended.get()

    def propose_to_admit(self, broker_id: int) -> None:
        """A follower has the record, and the leader proposes."""
        position = FetchPosition(2, 1, 0, 0)
        key = BrokerKey(broker_id, 1)
        now_ms = self._clock.monotonic_ms()
        self._led.carry_out(self.core.on_fetch(key, position, now_ms, session=1)[1])

    async def lagged(self) -> None:
        """The time for the followers is over: the outcome of what the leader then proposes."""
        late_ms = self._clock.monotonic_ms() + CONFIG.replica_lag_ms_max
        self._led.carry_out(self.core.on_deadline(late_ms))
        await self._ended.get()

    async def close(self) -> None:
        await self.proposals.close()
        self._spawn.close()

    @property
    def counts(self) -> tuple[int, int]:
        return self.proposals.shrinks, self.proposals.expands


_PARTITION = SimpleNamespace(topic="t", number=0, advance_high_watermark=lambda offset: None)


async def test_a_change_that_takes_two_replicas_out_is_one_shrink(tmp_path: Path) -> None:
    leading = Leading(tmp_path, (1, 2, 3), (1, 2, 3))
    await leading.lagged()
    assert leading.core.isr.committed == {1}
    assert leading.counts == (1, 0)
    await leading.fetched(2)
    await leading.fetched(3)
    assert leading.core.isr.committed == {1, 2, 3}
    assert leading.counts == (1, 2)
    await leading.close()


async def test_a_change_that_takes_one_replica_in_and_another_out_is_both(tmp_path: Path) -> None:
    leading = Leading(tmp_path, (1, 2, 3), (1, 2))
    leading.controller.answer = ErrorCode.INELIGIBLE_REPLICA
    await leading.fetched(3)
    assert leading.core.isr.committed == {1, 2}
    assert leading.counts == (0, 0)
    leading.controller.answer = ErrorCode.NONE
    await leading.lagged()
    assert leading.core.isr.committed == {1, 3}
    assert leading.counts == (1, 1)
    await leading.close()


async def test_a_response_without_results_is_told(tmp_path: Path) -> None:
    leading = Leading(tmp_path, (1, 2, 3), (1, 2))
    leading.controller.is_complete = False
    leading.propose_to_admit(3)
    assert isinstance(await leading.failed, ValueError)
    await leading.close()
