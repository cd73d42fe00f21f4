"""Bugs that controllers of replicated logs have had, planted; the machine must find each.

Each function breaks a rule through the patch that it is given.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any
from unittest import mock

from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test

from millrace_protocol.metadata_records import LEADER_UNCHANGED
from millrace_server.metadata import (
    broker_registrations,
    broker_sessions,
    isr_changes,
    leader_election,
    partition_changes,
)
from millrace_server.metadata.image import BrokerRegistration, PartitionRegistration
from millrace_server.metadata.partition_changes import ActiveBrokers
from millrace_server.metadata.replication_settings import ReplicationSettings, with_shared_settings
from millrace_server.metadata.topics import TopicChanges
from tests.server.metadata.controller_machine import ControllerMachine
from tests.server.metadata.invariants import Violation

Patch = Callable[[Any, str, Any], None]


def an_unclean_broker_stays_eligible(patch: Patch) -> None:
    """KIP-966: the last replica standing loses its tail in a crash, and is elected again."""
    patch(leader_election, "_with_tail_lost", lambda partition, broker_id: partition)


def a_wiped_broker_stays_eligible(patch: Patch) -> None:
    """KIP-858: a broker comes back with an empty directory, and leads."""
    patch(leader_election, "_with_replica_lost", lambda partition, broker_id: partition)
    patch(ActiveBrokers, "can_lead", lambda self, partition, broker_id: broker_id in self)


def elr_outlives_the_small_isr(patch: Patch) -> None:
    """KIP-966: the ISR is large enough again, records are committed, and the ELR lacks them."""
    patch(partition_changes, "_isr_needed", lambda settings, replicas: 1 << 30)


def every_replica_that_left_is_eligible(patch: Patch) -> None:
    """KIP-966: a replica that leaves an ISR which stays large enough is eligible none the less."""
    next_state = partition_changes.next_state

    def generous(partition: PartitionRegistration, *args: Any, **kwargs: Any) -> Any:
        after = next_state(partition, *args, **kwargs)
        was = {*partition.isr, *partition.elr} - set(after.isr)
        return replace(after, elr=tuple(r for r in after.replicas if r in was))

    patch(partition_changes, "next_state", generous)


def every_topic_allows_unclean_elections(patch: Patch) -> None:
    """Kafka's default before 0.11: any replica that lives leads."""
    elect = partition_changes._with_leader

    def careless(partition: Any, settings: ReplicationSettings, active: Any, *args: Any) -> Any:
        return elect(partition, replace(settings, allows_unclean=True), active, *args)

    patch(partition_changes, "_with_leader", careless)


def a_fenced_broker_enters_the_isr(patch: Patch) -> None:
    """KAFKA-13916: the controller takes whatever ISR the leader asks for."""
    patch(isr_changes, "_check_members", lambda *args: None)


def a_restarted_replica_enters_the_isr(patch: Patch) -> None:
    """KIP-903: a replica has caught up, crashed and lost its tail, and enters the ISR."""
    check = isr_changes._check_members

    def forgetful(image: Any, partition: Any, change: Any, *args: Any) -> None:
        members = tuple((member, isr_changes.UNKNOWN_EPOCH) for member, _ in change.isr)
        check(image, partition, replace(change, isr=members), *args)

    patch(isr_changes, "_check_members", forgetful)


def a_stopping_broker_leads(patch: Patch) -> None:
    """KIP-841: leaders move to a broker that is about to stop."""
    patch(BrokerRegistration, "is_active", property(lambda self: not self.is_fenced))


def a_fenced_broker_keeps_what_it_leads(patch: Patch) -> None:
    """KIP-841: the broker is fenced, and no partition changes."""
    patch(broker_registrations, "on_broker_inactive", lambda *args: [])


def a_restarted_broker_keeps_what_it_led(patch: Patch) -> None:
    """KIP-966: the registration of a new process is taken for that of the old one."""
    patch(broker_registrations, "on_broker_registered", lambda *args, **kwargs: [])


def an_old_leader_changes_the_isr(patch: Patch) -> None:
    """KIP-497: a request that another leader, or another ISR, has overtaken counts."""
    patch(isr_changes, "_check_epochs", lambda *args: None)


def a_reassignment_is_done_at_once(patch: Patch) -> None:
    """KIP-455: the old replicas go before the new ones are in sync."""

    def hasty(partition: PartitionRegistration, *args: Any) -> PartitionRegistration:
        staying = tuple(r for r in partition.replicas if r not in partition.removing)
        return replace(
            partition,
            replicas=staying,
            isr=staying if partition.adding else tuple(r for r in partition.isr if r in staying),
            elr=tuple(r for r in partition.elr if r in staying and not partition.adding),
            last_known_elr=(),
            directory_ids=tuple(partition.directory_of(r) for r in staying),
            adding=(),
            removing=(),
        )

    patch(partition_changes, "_with_reassignment_done", hasty)


def a_removed_replica_may_go_on_fetching(patch: Patch) -> None:
    """KIP-455: a leader that stays keeps its epoch when a replica is removed."""
    record = partition_changes._record

    def lax(topic_id: Any, number: int, before: Any, after: Any) -> Any:
        change = record(topic_id, number, before, after)
        if before.leader == after.leader:
            change.leader = LEADER_UNCHANGED
        return change

    patch(partition_changes, "_record", lax)


def more_acks_than_replicas(patch: Patch) -> None:
    """min.insync.replicas above the replication factor is accepted."""

    def lenient(self: TopicChanges, own: Any, replication_factor: int) -> Any:
        return with_shared_settings(own, {}, replication_factor=replication_factor)

    patch(TopicChanges, "_own", lenient)


def the_last_replica_is_retired(patch: Patch) -> None:
    """A broker leaves the cluster with the only copy of a partition."""
    patch(broker_registrations, "_check_not_last", lambda *args: None)


def a_broker_stops_before_others_know(patch: Patch) -> None:
    """KIP-631: the new leaders have not applied that they lead."""
    patch(broker_sessions.BrokerSessions, "_is_shutdown_known", lambda *args: True)


MUTANTS: tuple[Callable[[Patch], None], ...] = (
    an_unclean_broker_stays_eligible,
    a_wiped_broker_stays_eligible,
    elr_outlives_the_small_isr,
    every_replica_that_left_is_eligible,
    every_topic_allows_unclean_elections,
    a_fenced_broker_enters_the_isr,
    a_restarted_replica_enters_the_isr,
    a_stopping_broker_leads,
    a_fenced_broker_keeps_what_it_leads,
    a_restarted_broker_keeps_what_it_led,
    an_old_leader_changes_the_isr,
    a_reassignment_is_done_at_once,
    a_removed_replica_may_go_on_fetching,
    more_acks_than_replicas,
    the_last_replica_is_retired,
    a_broker_stops_before_others_know,
)


def run(machine: type[ControllerMachine], *, examples: int) -> None:
    """Runs the machine on the same examples each time, and stops at the first failure."""
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=80,
            deadline=None,
            derandomize=True,
            database=None,
            phases=[Phase.generate],
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def is_found(mutant: Callable[[Patch], None], *, examples: int) -> str | None:
    """The invariant that the machine sees broken under a mutant, None if it sees none."""
    with ExitStack() as stack:

        def patch(target: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(target, name, value))

        mutant(patch)
        try:
            run(ControllerMachine, examples=examples)
        except Violation as violation:
            return str(violation)
    return None
