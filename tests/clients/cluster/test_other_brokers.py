"""A client asks another broker where one cannot say, or does not know what has changed."""

from __future__ import annotations

from typing import Any

from millrace import Producer
from millrace_protocol.api import ApiKey
from millrace_protocol.errors import ErrorCode
from tests.clients.fake_broker import FakeBroker, Handler, Refuse


async def test_a_request_for_any_broker_goes_to_another_one_after_a_refusal() -> None:
    asked: list[int] = []
    async with FakeBroker({"t": 1}) as first, FakeBroker({"t": 1}, node_id=1) as second:
        brokers = (first, second)
        for broker in brokers:
            broker.peers = {each.node_id: (each.host, each.port) for each in brokers}
            broker.leader_of = lambda topic, partition: 1

            def knows_no_controller(
                request: Any, default: Handler, node_id: int = broker.node_id
            ) -> Any:
                asked.append(node_id)
                if node_id == asked[0]:
                    raise Refuse(ErrorCode.NOT_CONTROLLER)
                return default(request)

            broker.script(ApiKey.INIT_PRODUCER_ID, knows_no_controller)
        async with Producer([first.address, second.address], retry_backoff_ms=1) as producer:
            await producer.send("t", b"x")
    assert sorted(asked) == [0, 1]
