"""The rate at which replicas that are not in sync get records."""

from __future__ import annotations

from millrace import Admin, Producer
from millrace_server.testing import Cluster
from tests.broker.wire import until
from tests.cluster.records import TOPIC, create_topic, numbers, read_all, send
from tests.cluster.settings import SETTINGS

PARTITIONS = 6


async def test_replicas_in_sync_are_sent_records_while_another_one_waits_for_its_rate() -> None:
    # The records of one partition use up the rate for longer than a test may take. A new leader
    # would have a rate of its own, and a busy machine holds up heartbeats for longer than a second.
    settings = {**SETTINGS, "broker_session_timeout_ms": 600_000}
    async with (
        Cluster(3, catch_up_bytes_per_second=1, **settings) as cluster,
        Admin(cluster.servers) as admin,
        Producer(cluster.servers) as producer,
    ):
        await create_topic(cluster.servers, partitions=PARTITIONS, replication_factor=2, min_isr=2)
        (described,) = await admin.describe_topics([TOPIC])
        led: dict[int | None, list[tuple[int, tuple[int, ...]]]] = {}
        for each in described.unwrap().partitions:
            led.setdefault(each.leader, []).append((each.partition, tuple(each.replicas)))
        shared = next(partitions for partitions in led.values() if len(partitions) > 1)[:2]
        for number, _ in shared:
            await send(producer, numbers(0, 500), partition=number)

        moves = {(TOPIC, number): (1, 2, 3) for number, _ in shared}
        outcomes = await admin.alter_partition_reassignments(dict(moves.items()))
        assert all(outcome.error is None for outcome in outcomes.values())
        while len(ongoing := await admin.list_partition_reassignments([TOPIC])) == 2:
            pass
        ((_, waiting), state), *others = ongoing.items()
        assert not others and state.adding

        # The other partition has the same leader, whose rate is used up, and is in sync.
        (moved,) = (number for number, _ in shared if number != waiting)
        await send(producer, numbers(500, 600), partition=moved)
        assert [*await admin.list_partition_reassignments([TOPIC])] == [(TOPIC, waiting)]
        await admin.alter_partition_reassignments({(TOPIC, waiting): None})
        assert await admin.list_partition_reassignments([TOPIC]) == {}
        old = dict(shared)[waiting]
        broker = cluster.brokers[1].node.broker
        await until(lambda: {*broker.image.topics[TOPIC].partitions[waiting].replicas} == {*old})
        records = await read_all(cluster.servers)
        assert [value for _, value in records[waiting]] == numbers(0, 500)
        assert [value for _, value in records[moved]] == numbers(0, 600)
