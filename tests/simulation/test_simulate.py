"""A user's own code in a simulation: it is replayed, its bugs are found, and it has no way out."""

from __future__ import annotations

import asyncio
import os
import random
import socket
import subprocess
import threading
import time
import uuid
from collections.abc import Callable
from typing import Unpack

import pytest

from examples import simulated_service
from millrace import Admin, Consumer, Producer
from millrace.errors import MillraceError
from millrace_simulation import (
    FAULTS,
    Outcome,
    Simulation,
    SimulationConfig,
    SimulationFailed,
    simulate,
)
from millrace_simulation.simulation import Main, SimulationOptions

NO_FAULTS = ()


def outcome_of(main: Main, *, seed: int, **options: Unpack[SimulationOptions]) -> Outcome:
    return SimulationConfig(**options).run(main, seed=seed)


def run(main: Callable[[Simulation], object], *, seed: int = 1, **options: object) -> Outcome:
    return simulate(main, seed=seed, **options)  # type: ignore[arg-type]


async def produce_and_consume(sim: Simulation) -> None:
    async with Admin(sim.servers) as admin:
        await admin.create_topic("t", partitions=2)
    async with Producer(sim.servers) as producer, Consumer(sim.servers, "t") as consumer:
        for number in range(20):
            await producer.send("t", b"%d" % number)
            assert (await consumer.getone()).value == b"%d" % number


def test_a_seed_is_the_same_run_and_another_seed_another_one() -> None:
    found = [outcome_of(simulated_service.careful, seed=seed) for seed in (3, 3, 4)]
    assert [outcome.failure for outcome in found] == [None] * 3
    assert found[0] == found[1]
    assert found[0].digest != found[2].digest
    assert sum(found[0].faults.values()) > 5


def test_a_service_that_commits_before_it_sends_is_found_and_the_mended_one_is_not() -> None:
    seeds = range(1, 5)
    failed = [
        seed for seed in seeds if outcome_of(simulated_service.hasty, seed=seed).failure is not None
    ]
    assert failed
    for seed in failed:
        assert outcome_of(simulated_service.careful, seed=seed).failure is None


def test_a_failure_says_what_the_users_code_raised_and_where() -> None:
    async def main(sim: Simulation) -> None:
        assert sim.servers == "nowhere", "this is no bug of millrace"

    with pytest.raises(SimulationFailed, match="seed 7: main raised") as failed:
        run(main, seed=7)
    failure = failed.value.outcome.failure
    assert failure is not None
    assert "AssertionError: this is no bug of millrace" in failure
    assert __file__ in failure


def test_a_service_that_raises_fails_the_run_at_once() -> None:
    async def main(sim: Simulation) -> None:
        async def serve() -> None:
            await asyncio.sleep(3)
            raise ValueError("a bug")

        sim.service("shop", serve)
        await asyncio.sleep(10_000)

    outcome = outcome_of(main, seed=1, faults=NO_FAULTS)
    assert outcome.failure is not None
    assert outcome.failure.startswith("shop raised")
    assert outcome.virtual_s < 100


def test_a_service_is_started_again_after_a_kill_and_after_an_error_that_it_names() -> None:
    starts: list[str] = []

    async def main(sim: Simulation) -> None:
        async def serve() -> None:
            starts.append("serve")
            if len(starts) == 1:
                raise MillraceError("no broker")
            if len(starts) == 2:
                await asyncio.sleep(10_000)

        service = sim.service("shop", serve, restart_on=(MillraceError,))
        await asyncio.sleep(5)
        service.kill()
        await service.finished()
        assert service.starts == 3

    run(main, faults=NO_FAULTS)


def test_a_main_function_that_has_no_end_fails() -> None:
    async def main(sim: Simulation) -> None:
        await asyncio.Event().wait()

    outcome = outcome_of(main, seed=1, seconds=1, faults=NO_FAULTS)
    assert outcome.failure == "main is not done after 601 virtual seconds"


def test_time_and_chance_are_those_of_the_seed() -> None:
    def measure(seed: int) -> list[object]:
        found: list[object] = []

        async def main(sim: Simulation) -> None:
            started_s = time.monotonic()
            await asyncio.sleep(300)
            assert 290 < time.monotonic() - started_s < 310
            found.extend(
                (
                    time.time(),
                    random.random(),
                    random.Random().random(),
                    uuid.uuid4(),
                    os.urandom(4),
                )
            )

        run(main, seed=seed, faults=NO_FAULTS)
        return found

    state, now = random.getstate(), time.time()
    assert measure(1) == measure(1)
    assert not set(measure(1)) & set(measure(2))
    assert random.getstate() == state
    assert abs(time.time() - now) < 600, "the real clock is back"


async def _to_thread() -> None:
    await asyncio.to_thread(print)


async def _thread() -> None:
    threading.Thread(target=print).start()


async def _sleep() -> None:
    time.sleep(0)  # noqa: ASYNC251


async def _socket() -> None:
    with socket.socket() as sock:
        sock.connect(("127.0.0.1", 9))


async def _server() -> None:
    await asyncio.start_server(lambda *_: None, "127.0.0.1", 0)


async def _program() -> None:
    subprocess.run(["true"], check=True)  # noqa: ASYNC221


async def _async_program() -> None:
    await asyncio.create_subprocess_exec("true")


async def _lookup() -> None:
    await asyncio.open_connection("example.org", 80)


@pytest.mark.parametrize(
    ("way_out", "sentence"),
    [
        (_to_thread, "would run in a thread; a simulated process has only one"),
        (_thread, "a thread is not simulated: a simulated process has one"),
        (_sleep, "time.sleep is not simulated: time would stand still; use asyncio.sleep"),
        (_socket, "socket.connect is not simulated; it has a network of its own"),
        (_server, "a simulated process listens only as a broker does"),
        (_program, "is not simulated; it has one program"),
        (_async_program, "a simulated process starts no other program"),
        (_lookup, "No route to host"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_what_a_simulation_does_not_have_is_refused(
    way_out: Callable[[], object], sentence: str
) -> None:
    async def main(sim: Simulation) -> None:
        await way_out()  # type: ignore[misc]

    outcome = outcome_of(main, seed=1, brokers=1, faults=NO_FAULTS)
    assert outcome.failure is not None
    assert sentence in outcome.failure


def test_faults_on_purpose_happen_when_they_are_asked_for() -> None:
    async def main(sim: Simulation) -> None:
        async with Admin(sim.servers) as admin:
            await admin.create_topic("t")
        async with Producer(sim.servers) as producer:
            await producer.send("t", b"0")
            leader = sim.leader_of("t", 0)
            assert leader is not None
            sim.kill(leader)
            await producer.send("t", b"1")
            sim.isolate(sim.leader_of("t", 0) or 1)
            await producer.send("t", b"2")
            await sim.heal()
            sim.cut_power()
            await producer.send("t", b"3")
            sim.partition(1, 2)
            sim.slow(2, 3, 0.2)
            sim.skew_clock(1, 120)
            sim.fill_disk(3)
            await sim.pause(2, 1)
            await sim.heal()
            await sim.restart(1)
            await producer.send("t", b"4")
        async with Consumer(sim.servers, "t", start="earliest") as consumer:
            assert [(await consumer.getone()).value for _ in range(5)] == [
                b"0",
                b"1",
                b"2",
                b"3",
                b"4",
            ]

    run(main, faults=NO_FAULTS)


def test_a_consumer_that_waits_for_a_machine_without_power_goes_on_soon() -> None:
    """Its JoinGroup has no response, and no deadline but that of the rebalance, in minutes."""

    async def main(sim: Simulation) -> None:
        async with Admin(sim.servers) as admin:
            await admin.create_topic("t")

        async def read(name: str) -> None:
            async with Consumer(sim.servers, "t", group="g", client_id=name) as consumer:
                await consumer.getone()

        first = sim.service("first", read, "first")
        await asyncio.sleep(10)
        await first.stop()
        second = sim.service("second", read, "second")
        await asyncio.sleep(2)
        async with Producer(sim.servers) as producer:
            sim.cut_power()
            began_s = sim.now_s
            await producer.send("t", b"0")
        await second.finished()
        assert sim.now_s - began_s < 120

    run(main, faults=NO_FAULTS, settings={"group_initial_rebalance_delay_ms": 0})


@pytest.mark.parametrize("seed", range(3))
def test_a_producer_survives_a_disk_that_fails(seed: int) -> None:
    """The broker stops; another replica takes over, and the producer goes on there."""

    async def main(sim: Simulation) -> None:
        async with Admin(sim.servers) as admin:
            await admin.create_topic("t", partitions=3)
        sim.begin_faults()
        async with Producer(sim.servers) as producer:
            for number in range(60):
                await producer.send("t", b"%d" % number)
                await asyncio.sleep(0.5)

    run(main, seed=seed, faults=("write_error", "sync_error"), every_s=6)


def test_one_broker_is_a_cluster_too() -> None:
    run(produce_and_consume, brokers=1, faults=NO_FAULTS)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"brokers": 0}, "brokers is 0; it is 1 to 9"),
        ({"brokers": 10}, "brokers is 10; it is 1 to 9"),
        ({"seconds": -1}, "seconds is at least 0"),
        ({"every_s": 0}, "every_s is above 0"),
        ({"faults": ("fire",)}, "no fault 'fire'; there are kill, "),
        ({"settings": {"colour": "red"}}, "a simulated broker takes no setting 'colour'"),
        ({"settings": {"listen": "x:1"}}, "a simulated broker takes no setting 'listen'"),
    ],
)
def test_wrong_arguments_are_refused(options: dict[str, object], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        run(produce_and_consume, **options)  # type: ignore[arg-type]


def test_a_broker_and_a_service_that_are_not_there_are_refused() -> None:
    async def main(sim: Simulation) -> None:
        with pytest.raises(ValueError, match="no broker 4; there are 1 to 3"):
            sim.kill(4)
        sim.service("shop", asyncio.sleep, 1)
        with pytest.raises(ValueError, match="there is a service 'shop'; give each a name"):
            sim.service("shop", asyncio.sleep, 1)

    run(main, faults=NO_FAULTS)


def test_what_is_paused_goes_on_when_all_is_healed() -> None:
    async def main(sim: Simulation) -> None:
        async def count() -> None:
            for _ in range(20):
                await asyncio.sleep(1)

        service = sim.service("counter", count)
        pausing = [asyncio.create_task(each) for each in (service.pause(1e6), sim.pause(2, 1e6))]
        await asyncio.sleep(2)
        await sim.heal()
        await service.finished()
        for each in pausing:
            each.cancel()

    run(main, faults=NO_FAULTS)


def test_a_service_that_is_stopped_is_over_and_not_started_again() -> None:
    async def main(sim: Simulation) -> None:
        service = sim.service("idle", asyncio.sleep, 10_000)
        await asyncio.sleep(1)
        await service.stop()
        await asyncio.sleep(10)
        assert (service.is_over, service.starts) == (True, 1)

    run(main, faults=NO_FAULTS)


def test_every_kind_of_fault_can_be_alone() -> None:
    async def main(sim: Simulation) -> None:
        async def idle() -> None:
            await asyncio.sleep(30)

        service = sim.service("idle", idle)
        await sim.faults_over()
        await service.finished()

    for kind in FAULTS:
        outcome = run(main, seed=5, faults=(kind,), seconds=20, every_s=4)
        assert set(outcome.faults) == {kind}


def test_settings_of_brokers_are_those_of_the_product() -> None:
    async def main(sim: Simulation) -> None:
        async with Admin(sim.servers) as admin:
            configs = await admin.describe_broker_configs(1)
            assert configs["broker_session_timeout_ms"].value == "4000"

    run(main, faults=NO_FAULTS, settings={"broker_session_timeout_ms": 4000})
