"""What another configuration changes in a broker that runs: a decision without effects.

A setting that `setting(reloads=True)` marks takes effect at once, every other one at the next
start. `Node.reload` puts the decision into force, `serve` asks for it after a SIGHUP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from millrace_server.broker_settings import BrokerSetting, broker_settings
from millrace_server.config import BrokerConfig

_LIMITS = "limits."


@dataclass(frozen=True, slots=True)
class Reload:
    """The settings that differ, by name. No value of a secret is in it."""

    config: BrokerConfig
    """The settings in force from now on: those that reload are new, all others are as they were."""
    applied: Mapping[str, str]
    """What takes effect now, each as `OLD -> NEW`."""
    at_next_start: tuple[str, ...]
    """What is not as in the configuration that was read until the broker starts again."""


def changes(old: BrokerConfig, new: BrokerConfig) -> Reload:
    """What `new` changes in a broker in which `old` is in force.

    >>> reload = changes(BrokerConfig(), BrokerConfig(log_level="debug", rack="a"))
    >>> reload.applied, reload.at_next_start
    ({'log_level': 'info -> debug'}, ('rack',))
    >>> reload.config == BrokerConfig(log_level="debug")
    True
    """
    applied = {}
    at_next_start = []
    for before, after in zip(broker_settings(old), broker_settings(new), strict=True):
        if not _differ(before, after, old, new):
            continue
        if after.reloads:
            applied[after.name] = f"{before.value} -> {after.value}"
        else:
            at_next_start.append(after.name)
    return Reload(_in_force(old, new), applied, tuple(at_next_start))


def _differ(
    before: BrokerSetting, after: BrokerSetting, old: BrokerConfig, new: BrokerConfig
) -> bool:
    if after.is_secret:
        # Its text is hidden, and the same for every value.
        return bool(getattr(old, after.name) != getattr(new, after.name))
    return before.value != after.value


def _in_force(old: BrokerConfig, new: BrokerConfig) -> BrokerConfig:
    names = {each.name for each in broker_settings(new) if each.reloads}
    in_limits = {name.removeprefix(_LIMITS) for name in names if name.startswith(_LIMITS)}
    at_the_top = {name for name in names if not name.startswith(_LIMITS)}
    kept = {name: source for name, source in old.sources.items() if name not in names}
    read = {name: source for name, source in new.sources.items() if name in names}
    return replace(
        old,
        **{name: getattr(new, name) for name in at_the_top},
        limits=replace(old.limits, **{name: getattr(new.limits, name) for name in in_limits}),
        sources=kept | read,
    )
