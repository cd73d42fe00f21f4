"""What is done to a cluster: a fault from its begin to its end, chosen by a seed.

A fault names its victim by its role: that of a leader whose replica set is asked for acks, or that
of the active controller. `CLIENTS` is the host of the clients.
"""

from __future__ import annotations

import random
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from tests.chaos.broker_hosts import BrokerHosts
from tests.chaos.host_network import CLIENTS, HostNetwork


@dataclass(frozen=True)
class Scene:
    """A cluster with its network, and the roles that its brokers have now."""

    brokers: BrokerHosts
    network: HostNetwork
    leader: int
    """Of some partition."""
    controller: int
    rng: random.Random

    def others(self, *ids: int) -> list[int]:
        """The brokers that are not among these."""
        return [each for each in self.brokers.ids if each not in ids]

    def role(self) -> int:
        """The leader or the active controller."""
        return self.rng.choice((self.leader, self.controller))


Fault = Callable[[Scene], AbstractAsyncContextManager[None]]


@asynccontextmanager
async def kill_one(scene: Scene) -> AsyncIterator[None]:
    """SIGKILL of a leader or the controller; it is started again."""
    victim = scene.role()
    await scene.brokers.kill(victim)
    yield
    await scene.brokers.start(victim)


@asynccontextmanager
async def kill_a_majority(scene: Scene) -> AsyncIterator[None]:
    """SIGKILL of so many brokers that nothing can be committed; they are started again."""
    ids = scene.brokers.ids
    victims = scene.rng.sample(ids, len(ids) // 2 + 1)
    await scene.brokers.kill(*victims)
    yield
    await scene.brokers.start(*victims)


@asynccontextmanager
async def pause_one(scene: Scene) -> AsyncIterator[None]:
    """SIGSTOP of a leader or the controller, which does not know of the time that has passed."""
    victim = scene.role()
    scene.brokers.pause(victim)
    yield
    scene.brokers.resume(victim)


@asynccontextmanager
async def isolate_from_brokers(scene: Scene) -> AsyncIterator[None]:
    """Brokers and one of them lose each other; clients reach all of them."""
    victim, others = (each := scene.role()), scene.others(each)
    scene.network.cut([victim], others)
    scene.network.cut(others, [victim])
    yield
    scene.network.heal()


@asynccontextmanager
async def isolate_with_clients(scene: Scene) -> AsyncIterator[None]:
    """A minority of one broker, with the clients on its side."""
    victim, others = (each := scene.role()), scene.others(each)
    scene.network.cut([victim, CLIENTS], others)
    scene.network.cut(others, [victim, CLIENTS])
    yield
    scene.network.heal()


@asynccontextmanager
async def isolate_from_all(scene: Scene) -> AsyncIterator[None]:
    """A broker that nothing reaches."""
    victim, others = (each := scene.role()), scene.others(each)
    scene.network.cut([victim], [*others, CLIENTS])
    scene.network.cut([*others, CLIENTS], [victim])
    yield
    scene.network.heal()


@asynccontextmanager
async def hear_nothing(scene: Scene) -> AsyncIterator[None]:
    """A broker that is heard by the others, and does not hear them."""
    victim = scene.role()
    scene.network.cut(scene.others(victim), [victim])
    yield
    scene.network.heal()


@asynccontextmanager
async def be_heard_by_none(scene: Scene) -> AsyncIterator[None]:
    """A broker that hears the others, and is not heard by them."""
    victim = scene.role()
    scene.network.cut([victim], scene.others(victim))
    yield
    scene.network.heal()


@asynccontextmanager
async def cut_leader_from_controller(scene: Scene) -> AsyncIterator[None]:
    """A broker without heartbeats that followers and clients reach."""
    controller = scene.controller
    leads_alone = scene.leader != controller
    victim = scene.leader if leads_alone else scene.rng.choice(scene.others(controller))
    scene.network.cut([victim], [controller])
    scene.network.cut([controller], [victim])
    yield
    scene.network.heal()


@asynccontextmanager
async def lose_every_link(scene: Scene) -> AsyncIterator[None]:
    """No two brokers reach each other."""
    scene.network.cut(scene.brokers.ids, scene.brokers.ids)
    yield
    scene.network.heal()


FAULTS: tuple[Fault, ...] = (
    kill_one,
    kill_a_majority,
    pause_one,
    isolate_from_brokers,
    isolate_with_clients,
    isolate_from_all,
    hear_nothing,
    be_heard_by_none,
    cut_leader_from_controller,
    lose_every_link,
)
