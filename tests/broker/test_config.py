"""The broker's configuration: the sources of values, and the messages about mistakes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from millrace_cli.client_identity import MECHANISM, PASSWORD, PASSWORD_FILE, TOKEN, USERNAME
from millrace_cli.commands.user import NEW_PASSWORD
from millrace_server.config import BrokerConfig, ConfigError
from millrace_server.config_sources import load
from millrace_server.group_config import GroupConfig
from millrace_server.limits import Limits


def loaded(
    toml: str | None = None,
    environment: Mapping[str, str] | None = None,
    **flags: Any,
) -> BrokerConfig:
    return load(toml=toml, toml_name="m.toml", environment=environment or {}, flags=flags)


def mistake(
    toml: str | None = None, environment: Mapping[str, str] | None = None, **flags: Any
) -> ConfigError:
    with pytest.raises(ConfigError) as caught:
        loaded(toml, environment, **flags)
    return caught.value


def test_nothing_given_gives_the_defaults() -> None:
    assert loaded() == BrokerConfig()


def test_a_flag_beats_the_environment_which_beats_the_file() -> None:
    toml = 'data = "file"\nlisten = "127.0.0.1:1"\nnode_id = 1\npartitions = 7\n'
    environment = {"MILLRACE_LISTEN": "127.0.0.1:2", "MILLRACE_NODE_ID": "2"}
    config = loaded(toml, environment, node_id=3, data=None)
    assert (config.data, config.listen, config.node_id) == ("file", "127.0.0.1:2", 3)
    assert config.partitions == 7


def test_tables_are_merged_key_by_key() -> None:
    toml = '[topic]\n"retention.ms" = 1000\n"durability" = "os"\n[limits]\nlinger_ms = 5\n'
    environment = {
        "MILLRACE_TOPIC__RETENTION_MS": "2000",
        "MILLRACE_TOPIC__SEGMENT_BYTES": "4096",
        "MILLRACE_LIMITS__CONNECTIONS_MAX": "9",
    }
    config = loaded(toml, environment)
    assert config.topic == {"retention.ms": "2000", "durability": "os", "segment.bytes": "4096"}
    assert config.limits == Limits(linger_ms=5, connections_max=9)


def test_other_peoples_variables_are_not_read() -> None:
    assert loaded(environment={"PATH": "/bin", "MILLRACE_SERVERS": "a:1"}) == BrokerConfig()
    of_clients = (USERNAME, PASSWORD, PASSWORD_FILE, NEW_PASSWORD, MECHANISM, TOKEN)
    assert loaded(environment=dict.fromkeys(of_clients, "x")) == BrokerConfig()


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("", None),
        ("9464", ("127.0.0.1", 9464)),
        (":9464", ("127.0.0.1", 9464)),
        ("0.0.0.0:9464", ("0.0.0.0", 9464)),
        ("[::1]:0", ("::1", 0)),
        ("broker-1:9464", ("broker-1", 9464)),
    ],
)
def test_metrics_have_an_address_of_their_own(text: str, address: tuple[str, int] | None) -> None:
    assert loaded(metrics_listen=text).metrics_address == address


@pytest.mark.parametrize("text", ["metrics", "1:2:x", "127.0.0.1:99999", "127.0.0.1:"])
def test_a_wrong_address_for_metrics_is_refused(text: str) -> None:
    assert str(mistake(metrics_listen=text)) == (
        f"configuration: metrics_listen: {text!r} is neither HOST:PORT nor a port of 0 to 65535"
    )


def test_metrics_and_clients_have_different_ports() -> None:
    error = mistake(listen="127.0.0.1:9000", metrics_listen="9000")
    assert "127.0.0.1:9000 is the address for clients" in str(error)
    assert loaded(listen="127.0.0.1:0", metrics_listen="0").metrics_address == ("127.0.0.1", 0)


def test_coordinators_get_the_settings_of_the_broker() -> None:
    assert BrokerConfig().group == GroupConfig()
    environment = {
        "MILLRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "1",
        "MILLRACE_GROUP_MAX_SESSION_TIMEOUT_MS": "2",
        "MILLRACE_GROUP_INITIAL_REBALANCE_DELAY_MS": "3",
        "MILLRACE_GROUP_MAX_SIZE": "4",
        "MILLRACE_GROUP_MEMORY_MAX_BYTES": "5",
        "MILLRACE_OFFSETS_MEMORY_MAX_BYTES": "6",
        "MILLRACE_OFFSET_METADATA_MAX_BYTES": "7",
        "MILLRACE_OFFSETS_RETENTION_MINUTES": "8",
    }
    assert loaded(environment=environment).group == GroupConfig(
        session_timeout_min_ms=1,
        session_timeout_max_ms=2,
        initial_rebalance_delay_ms=3,
        group_size_max=4,
        memory_bytes=5,
        offsets_bytes_max=6,
        offset_metadata_bytes_max=7,
        offsets_retention_ms=8 * 60_000,
    )


@pytest.mark.parametrize("text", ["true", "True", "FALSE", "false"])
def test_truth_values_are_words_in_the_environment(text: str) -> None:
    config = loaded(environment={"MILLRACE_TEXT_DIALECT": text})
    assert config.text_dialect is (text.lower() == "true")


@pytest.mark.parametrize(
    ("toml", "environment", "key", "source", "words"),
    [
        ("listn = 'x'", {}, "listn", "m.toml", "did you mean listen?"),
        ("zzz = 1", {}, "zzz", "m.toml", "the keys are data, listen"),
        ("data = [", {}, "TOML", "m.toml", ""),
        ("node_id = 'one'", {}, "node_id", "m.toml", "'one' is not a whole number"),
        ("node_id = 1.5", {}, "node_id", "m.toml", "not a whole number"),
        ("node_id = true", {}, "node_id", "m.toml", "not a whole number"),
        ("text_dialect = 1", {}, "text_dialect", "m.toml", "neither true nor false"),
        ("data = 5", {}, "data", "m.toml", "is not text"),
        ("data = ''", {}, "data", "configuration", "empty"),
        ("topic = 5", {}, "topic", "m.toml", "table"),
        ("limits = 'x'", {}, "limits", "m.toml", "table"),
        ("[topic]\nretention.ms = 1", {}, "topic.retention", "m.toml", "quote the name"),
        (
            "[topic]\n'retention.m' = 1", {}, "topic.retention.m", "m.toml",
            "did you mean retention.ms?",
        ),
        ("[topic]\nzzz = 1", {}, "topic.zzz", "m.toml", "the settings are cleanup.policy"),
        ("[topic]\n'retention.ms' = 'x'", {}, "topic.retention.ms", "m.toml", "whole number"),
        ("[topic]\n'durability' = 'no'", {}, "topic.durability", "m.toml", "fsync or os"),
        (
            "[topic]\n'min.compaction.lag.ms' = 2\n'max.compaction.lag.ms' = 1", {}, "topic",
            "configuration", "cannot be cleaned before the one and after the other",
        ),
        (
            "[limits]\nconnection_max = 1", {}, "limits.connection_max", "m.toml",
            "did you mean connections_max?",
        ),
        ("[limits]\nconnections_max = 0", {}, "limits.connections_max", "m.toml", "less than 1"),
        ("[limits]\nconnections_max = 'x'", {}, "limits.connections_max", "m.toml", "whole"),
        ("[limits]\nframe_bytes_max = 100", {}, "limits", "m.toml", "at most frame_bytes_max"),
        ("[limits]\nline_bytes_max = 999999999", {}, "limits", "m.toml", "line_bytes_max"),
        ("loop = 'trio'", {}, "loop", "configuration", "uvloop, asyncio"),
        ("log_level = 'loud'", {}, "log_level", "configuration", "debug, info"),
        ("log_format = 'xml'", {}, "log_format", "configuration", "auto, json"),
        ("partitions = 0", {}, "partitions", "configuration", "less than 1"),
        (
            "compaction_keys_max = 0", {}, "compaction_keys_max", "configuration", "less than 1",
        ),
        ("drain_timeout_ms = -5", {}, "drain_timeout_ms", "configuration", "less than 1"),
        ("node_id = -1", {}, "node_id", "configuration", "less than 0"),
        ("start_wait_ms = -1", {}, "start_wait_ms", "configuration", "less than 0"),
        ("", {"MILLRACE_LISTN": "x"}, "listn", "environment", "did you mean listen?"),
        ("", {"MILLRACE_LIMITS__X": "1"}, "limits.x", "environment", "no such key"),
        ("", {"MILLRACE_TOPIC": "x"}, "MILLRACE_TOPIC", "environment", "MILLRACE_TOPIC__KEY"),
        (
            "", {"MILLRACE_TOPIC": "x", "MILLRACE_TOPIC__DURABILITY": "os"}, "MILLRACE_TOPIC",
            "environment", "table",
        ),
        ("", {"MILLRACE_LISTEN__X": "1"}, "MILLRACE_LISTEN__X", "environment", "not a table"),
        ("", {"MILLRACE_NODE_ID": ""}, "node_id", "environment", "not a whole number"),
    ],
)  # fmt: skip
def test_a_mistake_names_the_key_its_source_and_the_remedy(
    toml: str, environment: dict[str, str], key: str, source: str, words: str
) -> None:
    error = mistake(toml, environment)
    assert (error.key, error.source) == (key, source)
    assert words in error.reason
    assert str(error).startswith(f"{source}: {key}: ")


@pytest.mark.parametrize(
    "listen", ["", "9092", "localhost", "localhost:", "localhost:x", "localhost:65536", "h:-1"]
)
def test_a_malformed_address_is_refused(listen: str) -> None:
    error = mistake(listen=listen)
    assert error.key == "listen"
    assert "HOST:PORT" in error.reason
    if listen:
        assert mistake(advertise=listen).key == "advertise"


@pytest.mark.parametrize(
    "listen", ["0.0.0.0:9092", ":9092", "[::]:9092", "192.168.1.1:1", "example.org:9092"]
)
def test_listening_beyond_loopback_must_be_meant(listen: str) -> None:
    error = mistake(listen=listen)
    assert error.key == "listen"
    assert "--insecure-listen" in error.reason
    assert loaded(listen=listen, insecure_listen=True, advertise="a:9092").listen == listen


@pytest.mark.parametrize(
    ("listen", "advertise"),
    [("0.0.0.0:9092", ""), (":9092", ""), ("[::]:9092", ""), ("127.0.0.1:9092", "0.0.0.0:9092")],
)
def test_clients_are_never_told_to_connect_to_all_addresses(listen: str, advertise: str) -> None:
    error = mistake(listen=listen, advertise=advertise, insecure_listen=True)
    assert error.key == "advertise"
    assert "set advertise (--advertise) to the HOST:PORT" in error.reason


@pytest.mark.parametrize("listen", ["127.0.0.1:0", "127.9.9.9:1", "localhost:9092", "[::1]:9092"])
def test_loopback_needs_no_permission(listen: str) -> None:
    host, port = loaded(listen=listen).listen_address
    assert (host, port) == (listen.rpartition(":")[0].strip("[]"), int(listen.rpartition(":")[2]))


def test_the_advertised_address_is_another_or_none() -> None:
    (listener,) = loaded().listeners
    assert listener.advertised is None
    (listener,) = loaded(advertise="log.example:9").listeners
    assert listener.advertised == ("log.example", 9)


@pytest.mark.parametrize(
    ("settings", "key", "words"),
    [
        ({"initial_user": "root"}, "initial_password", "give its password"),
        ({"initial_password": "pencil"}, "initial_user", "name the user"),
        ({"initial_password_file": "pencil"}, "initial_user", "name the user"),
        (
            {"initial_user": "root", "initial_password": "pencil", "initial_password_file": "f"},
            "initial_password_file",
            "give one of them",
        ),
        ({"initial_user": "a\nb", "initial_password": "pencil"}, "initial_user", "no name"),
        ({"initial_user": "a" * 256, "initial_password": "pencil"}, "initial_user", "1 to 255"),
    ],
)
def test_an_initial_user_needs_a_name_and_one_password(
    settings: dict[str, Any], key: str, words: str
) -> None:
    error = mistake(**settings)
    assert error.key == key
    assert words in error.reason
    assert "pencil" not in str(error)


def test_a_password_that_is_no_text_is_not_repeated() -> None:
    assert "4711" not in str(mistake("initial_user = 'root'\ninitial_password = 4711"))


QUORUM = "1@127.0.0.1:11,2@127.0.0.1:12,3@127.0.0.1:13"
BROKER_1: dict[str, Any] = {"quorum": QUORUM, "node_id": 1, "listen": "127.0.0.1:9092"}
BROKER_TLS: dict[str, Any] = {"broker_tls_certificate": "b.pem", "broker_tls_ca": "ca.pem"}


def test_a_broker_of_a_cluster_listens_where_the_quorum_says_it_is() -> None:
    config = loaded(**BROKER_1)
    assert config.quorum_members[3] == ("127.0.0.1", 13)
    assert config.broker_listen_address == config.broker_address == ("127.0.0.1", 11)
    assert loaded().broker_listen_address is None


def test_other_brokers_are_told_the_address_in_the_quorum_and_not_the_one_listened_on() -> None:
    config = loaded(**BROKER_1, broker_listen="0.0.0.0:11", insecure_listen=True)
    assert config.broker_listen_address == ("0.0.0.0", 11)
    assert config.broker_address == ("127.0.0.1", 11)
    without_vote = loaded(**{**BROKER_1, "node_id": 7}, broker_listen="127.0.0.1:17")
    assert without_vote.broker_address == ("127.0.0.1", 17)


def test_brokers_that_check_each_other_may_listen_beyond_loopback() -> None:
    exposed = {**BROKER_1, "broker_listen": "0.0.0.0:11"}
    assert "set broker_tls_certificate and broker_tls_ca" in mistake(**exposed).reason
    assert loaded(**exposed, **BROKER_TLS).has_broker_tls


@pytest.mark.parametrize(
    ("changed", "key", "words"),
    [
        ({"quorum": "1@nowhere"}, "quorum", "'nowhere' is not HOST:PORT"),
        ({"quorum": "127.0.0.1:11"}, "quorum", "is not ID@HOST:PORT"),
        ({"quorum": "one@127.0.0.1:11"}, "quorum", "is not ID@HOST:PORT"),
        ({"quorum": "²@127.0.0.1:11"}, "quorum", "is not ID@HOST:PORT"),
        ({"quorum": f"{QUORUM},2@127.0.0.1:14"}, "quorum", "broker 2 is named twice"),
        ({"quorum": f"{2**31}@127.0.0.1:11"}, "quorum", "is more than 2147483647"),
        ({"quorum": "1@127.0.0.1:0"}, "quorum", "cannot connect to port 0 of broker 1"),
        ({"quorum": "1@:11"}, "quorum", "cannot connect to 0.0.0.0 of broker 1"),
        ({"quorum": "1@10.0.0.1:11"}, "quorum", "--insecure-listen"),
        ({"node_id": 0}, "quorum", "names brokers 1, 2, 3 and not this one, 0; set node_id"),
        ({"node_id": 2**31}, "node_id", "is more than 2147483647"),
        ({"listen": "127.0.0.1:0"}, "listen", "a broker of a cluster needs a fixed port"),
        ({"listen": "127.0.0.1:11"}, "quorum", "brokers need a port of their own"),
        ({"broker_listen": "11"}, "broker_listen", "is not HOST:PORT"),
        ({"broker_listen": "127.0.0.1:0"}, "broker_listen", "give a HOST:PORT"),
        ({"broker_listen": "0.0.0.0:11"}, "broker_listen", "--insecure-listen"),
        (
            {"broker_listen": "0.0.0.0:17", "node_id": 7, "insecure_listen": True},
            "broker_listen", "other brokers cannot connect to 0.0.0.0:17",
        ),
        ({"quorum": "", "broker_listen": "127.0.0.1:11"}, "broker_listen", "needs quorum"),
        ({"broker_heartbeat_interval_ms": 0}, "broker_heartbeat_interval_ms", "less than 1"),
        (
            {"broker_heartbeat_interval_ms": 500, "broker_session_timeout_ms": 500},
            "broker_session_timeout_ms", "not more than broker_heartbeat_interval_ms, 500",
        ),
        ({"replication_factor": 0}, "replication_factor", "less than 1"),
        ({"broker_tls_certificate": "b.pem"}, "broker_tls_ca", "TLS between brokers needs"),
        ({"broker_tls_ca": "ca.pem"}, "broker_tls_certificate", "TLS between brokers needs"),
        ({"broker_tls_key": "k.pem"}, "broker_tls_certificate", "TLS between brokers needs"),
        ({**BROKER_TLS, "quorum": ""}, "broker_tls_certificate", "needs quorum"),
    ],
)  # fmt: skip
def test_a_mistake_about_a_cluster_names_the_setting_and_the_remedy(
    changed: dict[str, Any], key: str, words: str
) -> None:
    error = mistake(**{**BROKER_1, **changed})
    assert (error.key, error.source) == (key, "configuration")
    assert words in error.reason
