"""A Hypothesis machine over the cluster model: 1 to 5 brokers, and every kind of event."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from millrace_server.metadata.partition_changes import Election
from tests.server.metadata.cluster_model import ClusterModel

BROKERS_MAX = 5
TOPICS_MAX = 2
BROKERS = st.integers(1, BROKERS_MAX)
PARTITIONS_MAX = 4
CHOICES = st.integers(0, PARTITIONS_MAX - 1)
"""Which of the partitions, or of the brokers that run or do not, by turn."""
SETTINGS = st.fixed_dictionaries(
    {
        "min.insync.replicas": st.sampled_from(["2", "2", "1", "3"]),
        "durability": st.sampled_from(["os", "fsync"]),
        "unclean.leader.election.enable": st.sampled_from(["false", "false", "false", "true"]),
    }
)


class ControllerMachine(RuleBasedStateMachine):
    """Every rule is one event; the model checks what must hold behind it."""

    met: ClassVar[Counter[str]] = Counter()
    """Situations of all runs."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = ClusterModel()

    @initialize(
        brokers=st.sampled_from([3, 3, 1, 2, 4, 5]), settings=SETTINGS, factor=st.integers(1, 3)
    )
    def begin(self, brokers: int, settings: dict[str, str], factor: int) -> None:
        for broker_id in range(1, brokers + 1):
            self.cluster.start(broker_id)
            self.cluster.heartbeat(broker_id)
        self._create(1, min(factor, brokers), settings)

    @rule(choice=CHOICES, is_unfenced=st.booleans())
    def start(self, choice: int, is_unfenced: bool) -> None:
        """A broker that does not run starts, or a new one."""
        broker_id = self.cluster.stopped(choice, BROKERS_MAX)
        if broker_id is not None and self.cluster.start(broker_id) and is_unfenced:
            self.cluster.heartbeat(broker_id)

    @rule(choice=CHOICES, is_fenced=st.booleans())
    def kill(self, choice: int, is_fenced: bool) -> None:
        broker_id = self.cluster.running(choice)
        if broker_id is not None:
            self.cluster.kill(broker_id)
            if is_fenced:
                self.cluster.silence(broker_id)

    @rule(choice=CHOICES, is_restarted=st.booleans())
    def kill_leader(self, choice: int, is_restarted: bool) -> None:
        broker_id = self.cluster.leader(choice)
        if broker_id is not None:
            self.cluster.kill(broker_id)
            self.cluster.silence(broker_id)
            if is_restarted and self.cluster.start(broker_id):
                self.cluster.heartbeat(broker_id)

    @rule(choice=CHOICES, is_restarted=st.booleans())
    def stop(self, choice: int, is_restarted: bool) -> None:
        broker_id = self.cluster.running(choice)
        if broker_id is not None:
            self.cluster.stop(broker_id)
            if is_restarted and self.cluster.start(broker_id):
                self.cluster.heartbeat(broker_id)

    @rule(broker_id=BROKERS, wants_shutdown=st.booleans())
    def heartbeat(self, broker_id: int, wants_shutdown: bool) -> None:
        self.cluster.heartbeat(broker_id, wants_shutdown=wants_shutdown)

    @rule(choice=CHOICES)
    def silence(self, choice: int) -> None:
        """A broker is paused for longer than its session."""
        broker_id = self.cluster.running(choice)
        if broker_id is not None:
            self.cluster.silence(broker_id)

    @rule(choice=CHOICES)
    def lose_disk(self, choice: int) -> None:
        """A broker crashes, and is back with an empty disk."""
        broker_id = self.cluster.running(choice)
        if broker_id is not None:
            self.cluster.kill(broker_id)
            self.cluster.wipe(broker_id)
            self.cluster.silence(broker_id)
            self.cluster.start(broker_id)
            self.cluster.heartbeat(broker_id)

    @rule()
    def fail_over(self) -> None:
        self.cluster.fail_over()

    @rule(choice=CHOICES, is_replicated=st.booleans())
    def produce(self, choice: int, is_replicated: bool) -> None:
        self.cluster.produce(choice)
        if is_replicated:
            self.cluster.replicate(choice)

    @rule(choice=CHOICES, follower=BROKERS)
    def fetch(self, choice: int, follower: int) -> None:
        self.cluster.fetch(choice, follower)

    @rule(choice=CHOICES)
    def expand(self, choice: int) -> None:
        """The leader asks for all followers that it saw catch up, whatever they are now."""
        for follower in range(1, BROKERS_MAX + 1):
            self.cluster.expand(choice, follower)

    @rule(choice=CHOICES)
    def restart(self, choice: int) -> None:
        """Records are written, a broker crashes and is back, and its leaders ask for it."""
        broker_id = self.cluster.running(choice)
        if broker_id is not None:
            for partition in range(PARTITIONS_MAX):
                self.produce(partition, True)
            self.cluster.kill(broker_id)
            self.cluster.silence(broker_id)
            self.cluster.start(broker_id)
            self.cluster.heartbeat(broker_id)
            for partition in range(PARTITIONS_MAX):
                self.expand(partition)

    @rule(choice=CHOICES)
    def close_isr(self, choice: int) -> None:
        """All followers that run catch up and enter the ISR."""
        self.cluster.heartbeat_all()
        self.cluster.replicate(choice)
        for follower in range(1, BROKERS_MAX + 1):
            self.cluster.expand(choice, follower)

    @rule(choice=CHOICES, follower=BROKERS)
    def shrink(self, choice: int, follower: int) -> None:
        self.cluster.shrink(choice, follower)

    @rule(choice=CHOICES, age=st.integers(0, 7), members=st.lists(BROKERS, max_size=2))
    def ask_late(self, choice: int, age: int, members: list[int]) -> None:
        self.cluster.ask_late(choice, age, members)

    @precondition(lambda self: len(self.cluster.image.topics) < TOPICS_MAX)
    @rule(partitions=st.integers(1, 2), factor=st.integers(-1, 4), settings=SETTINGS)
    def create(self, partitions: int, factor: int, settings: dict[str, str]) -> None:
        self._create(partitions, factor, settings)

    @rule(choice=CHOICES, min_isr=st.sampled_from([None, "1", "2", "3"]))
    def configure(self, choice: int, min_isr: str | None) -> None:
        self.cluster.configure(choice, {"min.insync.replicas": min_isr})

    @precondition(lambda self: len(self.cluster.image.topics) == TOPICS_MAX)
    @rule(choice=CHOICES)
    def delete(self, choice: int) -> None:
        self.cluster.delete(choice)

    @rule(choice=CHOICES, replicas=st.none() | st.lists(BROKERS, max_size=3).map(tuple))
    def reassign(self, choice: int, replicas: tuple[int, ...] | None) -> None:
        self.cluster.reassign(choice, replicas)

    @rule(choice=CHOICES, election=st.sampled_from([Election.PREFERRED, Election.UNCLEAN]))
    def elect(self, choice: int, election: Election) -> None:
        self.cluster.elect(choice, election)

    @rule()
    def balance(self) -> None:
        self.cluster.balance()

    @rule(choice=CHOICES)
    def evacuate(self, choice: int) -> None:
        """A broker's replicas move away, so that it can leave the cluster."""
        broker_id = self.cluster.running(choice)
        if broker_id is not None:
            self.cluster.evacuate(broker_id)
            for partition in range(PARTITIONS_MAX):
                self.close_isr(partition)

    @rule(broker_id=BROKERS)
    def retire(self, broker_id: int) -> None:
        self.cluster.retire(broker_id)

    def _create(self, partitions: int, factor: int, settings: dict[str, str]) -> None:
        """Creates a topic with no larger `min.insync.replicas` than its brokers can answer."""
        min_isr = min(int(settings["min.insync.replicas"]), max(factor, 1))
        self.cluster.create(partitions, factor, {**settings, "min.insync.replicas": str(min_isr)})
        self.cluster.heartbeat_all()

    def teardown(self) -> None:
        self.cluster.fail_over()
        ControllerMachine.met += self.cluster.situations
