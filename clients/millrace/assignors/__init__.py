"""Which member of a group reads which partition: the built-in assignors, and their interface.

    Consumer(..., group="hourly", assignors=["cooperative-sticky"])

| name | gives | when the group changes |
|---|---|---|
| `range` | neighbours, the same numbers of every topic | all members stop; shares shift |
| `roundrobin` | one by one over all topics | all members stop; most partitions move |
| `sticky` | even shares | all members stop; few partitions move |
| `cooperative-sticky` | even shares | only partitions that move stop, and few do |

The placements are those of Kafka's assignors of the same names, so that millrace's and Kafka's
consumers can share a group whichever of them leads it. Racks are carried and not looked at.

Nothing here does I/O or keeps state: an assignor is a function of what the members say.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace.assignors.assignor import (
    Assignor,
    Placement,
    RebalanceProtocol,
    Subscription,
    decode_assigned,
    encode_assigned,
)
from millrace.assignors.cooperative_sticky import CooperativeStickyAssignor
from millrace.assignors.range import RangeAssignor
from millrace.assignors.round_robin import RoundRobinAssignor
from millrace.assignors.sticky import StickyAssignor
from millrace.errors import ConfigError

__all__ = [
    "BUILT_IN",
    "Assignor",
    "CooperativeStickyAssignor",
    "Placement",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "chosen",
    "decode_assigned",
    "encode_assigned",
    "rebalance_protocol",
]

BUILT_IN: dict[str, Assignor] = {
    assignor.name: assignor
    for assignor in (
        RangeAssignor(),
        RoundRobinAssignor(),
        StickyAssignor(),
        CooperativeStickyAssignor(),
    )
}
"""The assignors that a name stands for."""


def chosen(assignors: Sequence[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors of a consumer's setting, in its order of preference.

    Raises `ConfigError` for a name that is not built in, for two of one name, for none, and for
    assignors that no one way of rebalancing is right for.
    """
    if isinstance(assignors, str) or not assignors:
        raise ConfigError('assignors is a list with at least one of them, as ["range"]')
    found: dict[str, Assignor] = {}
    for choice in assignors:
        assignor = BUILT_IN.get(choice) if isinstance(choice, str) else choice
        if assignor is None:
            raise ConfigError(
                f"assignors has {choice!r}; the names are {', '.join(BUILT_IN)}, "
                "and your own goes there as an object"
            )
        if assignor.name in found:
            raise ConfigError(f"assignors has {assignor.name!r} twice; leave one of them out")
        found[assignor.name] = assignor
    rebalance_protocol(tuple(found.values()))
    return tuple(found.values())


def rebalance_protocol(assignors: Sequence[Assignor]) -> RebalanceProtocol:
    """How a member with these assignors rebalances: cooperatively if all of them allow it.

    A group that goes from an eager assignor to `cooperative-sticky` names both for a while, and
    stays eager until the last member names that one only. Raises `ConfigError` when nothing is
    right for all.
    """
    for protocol in (RebalanceProtocol.COOPERATIVE, RebalanceProtocol.EAGER):
        if all(protocol in assignor.protocols for assignor in assignors):
            return protocol
    names = ", ".join(assignor.name for assignor in assignors)
    raise ConfigError(f"assignors has {names}, and no way of rebalancing is right for all of them")
