"""Calls to the active controller go on when another broker becomes it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_lifecycle import (
    AssignReplicasRequest,
    AssignReplicasResponse,
)
from millrace_protocol.schema import Message
from millrace_server.api_error import ApiError
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.controller.controller_requests import ControllerRequests
from millrace_server.machine import LoopSpawn, this_machine
from millrace_server.peers.calls import Channel, PeerUnreachable

REPORT = AssignReplicasRequest(1, 7, uuid.UUID(int=1), ())


class Controllers:
    """Implements `PeerCalls`: each call is answered by the next of these brokers."""

    refusal: ApiError | None = None

    def __init__(self, *answers: ErrorCode | Exception) -> None:
        self.answers = list(answers)

    async def is_process_gone(self, broker_id: int) -> bool:
        return False

    async def call(
        self,
        broker_id: int,
        channel: Channel,
        request: Message,
        response: type[Any],
        *,
        timeout_ms: int,
    ) -> Any:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return AssignReplicasResponse(answer, None)


def no_room() -> None:
    raise ApiError(ErrorCode.DISK_FULL)


def calls_to(
    path: Path,
    spawn: LoopSpawn,
    controllers: Controllers,
    *,
    leader_id: int | None = 2,
    check_room: Callable[[], None] = lambda: None,
) -> ControllerCalls:
    metadata = SimpleNamespace(
        active=SimpleNamespace(is_active=False),
        leader_id=leader_id,
        key=SimpleNamespace(broker_id=1),
        check_room=check_room,
    )
    return ControllerCalls(
        this_machine(path, spawn),
        cast("ClusterMetadata", metadata),
        cast("ControllerRequests", None),
        controllers,
        is_alone=False,
    )


async def test_a_report_is_repeated_while_controllers_come_and_go(tmp_path: Path) -> None:
    controllers = Controllers(
        PeerUnreachable("no connection"),
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ApiError(ErrorCode.BROKER_STOPPING),
        ErrorCode.NONE,
    )
    spawn = LoopSpawn()
    calls = calls_to(tmp_path, spawn, controllers)
    await calls.call(REPORT, AssignReplicasResponse, timeout_ms=600_000)
    assert controllers.answers == []
    spawn.close()


async def test_a_refusal_of_the_controller_is_the_answer(tmp_path: Path) -> None:
    controllers = Controllers(ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NONE)
    spawn = LoopSpawn()
    calls = calls_to(tmp_path, spawn, controllers)
    with pytest.raises(ApiError) as refused:
        await calls.call(REPORT, AssignReplicasResponse, timeout_ms=600_000)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
    spawn.close()


async def test_a_controller_that_stops_is_no_controller_when_the_time_is_over(
    tmp_path: Path,
) -> None:
    spawn = LoopSpawn()
    calls = calls_to(tmp_path, spawn, Controllers(ApiError(ErrorCode.BROKER_STOPPING)))
    with pytest.raises(ApiError, match="The controller stops") as refused:
        await calls.call(REPORT, AssignReplicasResponse, timeout_ms=1)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    spawn.close()


@pytest.mark.parametrize("leader_id", [None, 1], ids=["no leader", "not yet"])
async def test_a_broker_that_waits_for_room_says_so_at_once(
    tmp_path: Path, leader_id: int | None
) -> None:
    spawn = LoopSpawn()
    calls = calls_to(tmp_path, spawn, Controllers(), leader_id=leader_id, check_room=no_room)
    with pytest.raises(ApiError) as refused:
        await calls.call(REPORT, AssignReplicasResponse, timeout_ms=600_000)
    assert refused.value.code is ErrorCode.DISK_FULL
    spawn.close()


async def test_a_caller_that_can_go_elsewhere_does_not_wait_for_a_leader(tmp_path: Path) -> None:
    spawn = LoopSpawn()
    calls = calls_to(tmp_path, spawn, Controllers(), leader_id=None)
    with pytest.raises(ApiError) as refused:
        await calls.call(REPORT, AssignReplicasResponse, timeout_ms=600_000, leaderless_ms=1)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
    spawn.close()
