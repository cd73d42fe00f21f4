"""A broker that starts waits for its registration, whatever the controllers do meanwhile."""

from __future__ import annotations

import random
import uuid
from types import SimpleNamespace
from typing import Any, cast

import pytest

from millrace_protocol.errors import ErrorCode
from millrace_protocol.messages.broker_lifecycle import (
    BrokerRegistrationResponse,
    ClientListener,
)
from millrace_server.api_error import ApiError
from millrace_server.controller import broker_lifecycle
from millrace_server.controller.broker_lifecycle import BrokerLifecycle
from millrace_server.controller.cluster_metadata import ClusterMetadata
from millrace_server.controller.controller_calls import ControllerCalls
from millrace_server.environment.seams import Environment

LISTENER = ClientListener("plain", "127.0.0.1", 9092, False)
SESSION_MS = 2_000
REGISTER_MS = 60_000


class Controllers:
    """Refuses every registration until `accepts_ms` of its clock, which a request takes 100 ms of.

    So do active controllers that follow each other: each begins the session of the process that
    was killed anew.
    """

    def __init__(self, code: ErrorCode, accepts_ms: int) -> None:
        self._code = code
        self._accepts_ms = accepts_ms
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms

    async def call(self, *_: object, **__: object) -> BrokerRegistrationResponse:
        self.now_ms += 100
        if self.now_ms < self._accepts_ms:
            raise ApiError(self._code)
        return BrokerRegistrationResponse(ErrorCode.NONE, None, 7)


async def nothing(*_: object) -> None: ...


def lifecycle(controllers: Controllers) -> BrokerLifecycle:
    metadata = SimpleNamespace(
        identity=SimpleNamespace(directory_id=uuid.UUID(int=1)),
        publisher=SimpleNamespace(published=nothing),
        note_cluster=nothing,
        leader_id=2,
    )
    env: Any = SimpleNamespace(clock=controllers, rng=random.Random(1))
    return BrokerLifecycle(
        cast("Environment", env),
        cast("ClusterMetadata", metadata),
        cast("ControllerCalls", controllers),
        broker_id=1,
        rack=None,
        broker_address=lambda: ("127.0.0.1", 9093),
        is_alone=False,
        heartbeat_interval_ms=400,
        session_timeout_ms=SESSION_MS,
        register_timeout_ms=REGISTER_MS,
        on_registered=nothing,
    )


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker_lifecycle, "REGISTER_AGAIN_MS", 0)


@pytest.mark.parametrize(
    "code", [ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.REQUEST_TIMED_OUT]
)
async def test_a_start_waits_while_controllers_follow_each_other(code: ErrorCode) -> None:
    broker = lifecycle(Controllers(code, accepts_ms=REGISTER_MS))
    await broker.register((LISTENER,))
    assert broker.epoch == 7


async def test_another_process_with_the_id_is_an_error_when_the_time_is_over() -> None:
    code = ErrorCode.DUPLICATE_BROKER_REGISTRATION
    controllers = Controllers(code, accepts_ms=2 * REGISTER_MS)
    with pytest.raises(ApiError) as refused:
        await lifecycle(controllers).register((LISTENER,))
    assert refused.value.code is code
    assert controllers.now_ms == REGISTER_MS + 100


async def test_what_waiting_does_not_mend_is_an_error_at_once() -> None:
    controllers = Controllers(ErrorCode.INVALID_REQUEST, accepts_ms=REGISTER_MS)
    with pytest.raises(ApiError) as refused:
        await lifecycle(controllers).register((LISTENER,))
    assert (refused.value.code, controllers.now_ms) == (ErrorCode.INVALID_REQUEST, 100)
