"""What a configuration that is read again changes: at once, or at the next start."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from millrace_server.broker_settings import BrokerSetting, broker_settings
from millrace_server.config import BrokerConfig
from millrace_server.config_checks import check
from millrace_server.config_reload import changes
from millrace_server.config_sources import load
from millrace_server.limits import Limits
from millrace_server.topic_config import TOPIC_CONFIG_KEYS

OTHER_WORDS = {
    "log_level": "debug",
    "log_format": "json",
    "super_users": "User:ada",
    "topic.durability": "os",
}
EVERY_SETTING = list(broker_settings(BrokerConfig()))
RELOADING = [each for each in EVERY_SETTING if each.reloads]


def with_another_value(setting: BrokerSetting) -> BrokerConfig:
    """The defaults, and another value that is valid for the setting alone."""
    table, _, name = setting.name.partition(".")
    if table == "topic":
        default = TOPIC_CONFIG_KEYS[name].default
        other = OTHER_WORDS.get(setting.name) or f"{default}1"
        return BrokerConfig(topic={name: other})
    if table == "limits":
        value = getattr(Limits(), name)
        return BrokerConfig(limits=dataclasses.replace(Limits(), **{name: value - 1}))
    value = getattr(BrokerConfig(), setting.name)
    if isinstance(value, bool):
        changed: Any = not value
    elif isinstance(value, int):
        changed = value + 1
    else:
        changed = OTHER_WORDS.get(setting.name, f"{value}x")
    return dataclasses.replace(BrokerConfig(), **{setting.name: changed})


@pytest.mark.parametrize("setting", RELOADING, ids=lambda each: each.name)
def test_a_setting_that_reloads_takes_effect_whatever_the_others_are(
    setting: BrokerSetting,
) -> None:
    new = with_another_value(setting)
    reload = changes(BrokerConfig(), new)
    assert (list(reload.applied), reload.at_next_start) == ([setting.name], ())
    assert reload.config == new
    check(new)


def test_every_other_setting_of_a_broker_waits_for_the_next_start() -> None:
    others = [each for each in EVERY_SETTING if not each.reloads and "." not in each.name]
    for setting in others:
        reload = changes(BrokerConfig(), with_another_value(setting))
        assert (reload.applied, reload.at_next_start) == ({}, (setting.name,))
        assert reload.config == BrokerConfig()


def test_tables_are_compared_key_by_key() -> None:
    old = load(toml='[topic]\n"retention.ms" = 1\n', toml_name="", environment={}, flags={})
    toml = '[topic]\n"segment.ms" = 5\n[limits]\nlinger_ms = 7\nconnections_max = 9\n'
    reload = changes(old, load(toml=toml, toml_name="", environment={}, flags={}))
    assert reload.applied == {"limits.connections_max": "12000 -> 9"}
    assert set(reload.at_next_start) == {
        "limits.linger_ms",
        "topic.retention.ms",
        "topic.segment.ms",
    }
    assert reload.config.limits == dataclasses.replace(Limits(), connections_max=9)
    assert reload.config.topic == old.topic


def test_the_source_of_a_value_is_that_of_the_value_in_force() -> None:
    environment = {"MILLRACE_LOG_LEVEL": "debug", "MILLRACE_RACK": "a"}
    old = load(toml=None, toml_name="", environment=environment, flags={})
    toml = 'log_level = "error"\nrack = "b"\npartitions = 3\n'
    new = load(toml=toml, toml_name="", environment={}, flags={})
    assert changes(old, new).config.sources == {"log_level": "file", "rack": "environment"}
    assert changes(changes(old, new).config, new).at_next_start == ("rack", "partitions")


def test_no_secret_is_in_what_is_said_of_a_change() -> None:
    old, new = (
        BrokerConfig(initial_user="ada", initial_password=each) for each in ("pencil", "eraser")
    )
    reload = changes(old, new)
    assert reload.at_next_start == ("initial_password",)
    assert "pencil" not in repr(reload) and "eraser" not in repr(reload)
