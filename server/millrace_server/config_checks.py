"""Refuses settings of a broker that cannot be, each with what to do.

Owns what one setting may be and what two may not be together. The bounds of `limits` are
`Limits`' own, those of groups `GroupConfig`'s.
"""

from __future__ import annotations

from urllib.parse import urlsplit

from millrace_protocol.scram import SCRAM_MECHANISMS
from millrace_server.api_error import ApiError
from millrace_server.config import NODE_ID_MAX, BrokerConfig, ConfigError
from millrace_server.listeners import (
    Address,
    ListenerConfig,
    host_and_port,
    is_loopback,
    parse_advertised,
    parse_listeners,
)
from millrace_server.principal import USER_BYTES_MAX, is_user_name
from millrace_server.topic_config import TopicConfig

SASL_MECHANISMS = (*SCRAM_MECHANISMS, "PLAIN", "OAUTHBEARER")
_WORDS = {
    "loop": ("uvloop", "asyncio"),
    "authorization": ("auto", "on", "off"),
    "log_level": ("debug", "info", "warning", "error"),
    "log_format": ("auto", "json", "console"),
}
_LEAST = {
    "node_id": 0,
    "failed_authentication_delay_ms": 0,
    "connections_max_reauth_ms": 0,
    "start_wait_ms": 0,
    "scrub_bytes_per_second": 0,
    "catch_up_bytes_per_second": 0,
    "partitions": 1,
    "partitions_max": 1,
    "housekeeping_interval_ms": 1,
    "compaction_bytes_per_second": 1,
    "compaction_keys_max": 1,
    "scrub_interval_ms": 1,
    "metadata_snapshot_bytes": 1,
    "drain_timeout_ms": 1,
    "quorum_wait_ms": 1,
    "broker_heartbeat_interval_ms": 1,
    "broker_session_timeout_ms": 1,
    "replication_factor": 1,
    "offsets_topic_partitions": 1,
    "offsets_retention_minutes": 1,
    "group_min_session_timeout_ms": 1,
    "group_max_size": 1,
    "group_memory_max_bytes": 1,
    "offsets_memory_max_bytes": 1,
    "principal_share_percent": 1,
}
_BROKER_TLS_FILES = ("broker_tls_certificate", "broker_tls_key", "broker_tls_ca")
_ALL_ADDRESSES = ("0.0.0.0", "::")


def check(config: BrokerConfig) -> None:
    """Raises `ConfigError` for the first setting that is not valid."""
    for name, words in _WORDS.items():
        if getattr(config, name) not in words:
            raise _error(name, f"{getattr(config, name)!r}; use {', '.join(words)}")
    for name, least in _LEAST.items():
        if getattr(config, name) < least:
            raise _error(name, f"{getattr(config, name)} is less than {least}")
    if config.principal_share_percent > 100:
        raise _error("principal_share_percent", f"{config.principal_share_percent} is above 100")
    if config.node_id > NODE_ID_MAX:
        raise _error("node_id", f"{config.node_id} is more than {NODE_ID_MAX}")
    try:
        TopicConfig({}, config.topic).changed({})
    except ApiError as refused:
        raise _error("topic", refused.message) from None
    if not config.data:
        raise _error("data", "is empty; name a directory")
    _check_addresses(config)


def _check_addresses(config: BrokerConfig) -> None:
    name = "listen"
    try:
        listeners = parse_listeners(config.listen)
        name = "advertise"
        parse_advertised(config.advertise, listeners)
        name = "broker_listen"
        if config.broker_listen:
            host_and_port(config.broker_listen)
    except ValueError as error:
        raise _error(name, str(error)) from None
    for listener in config.listeners:
        _check_listener(listener, config)
    _check_tls_files(config)
    _check_mechanisms(config)
    _check_super_users(config)
    _check_initial_user(config)
    _check_listener_for_metrics(config)
    _check_quorum(config)


def _check_listener(listener: ListenerConfig, config: BrokerConfig) -> None:
    # The certificate of a client is its authentication.
    has_authentication = listener.is_sasl or bool(listener.is_tls and config.tls_client_ca)
    if not (listener.is_tls and has_authentication):
        missing = "encryption" if has_authentication else "authentication"
        _check_exposure("listen", listener.address, config, missing=missing)
    # Kafka refuses it too: on another machine this address is that machine.
    advertised, _ = listener.advertised or listener.address
    if advertised in _ALL_ADDRESSES:
        name = "" if listener.name == config.listeners[0].name else f"{listener.name}="
        raise _error(
            "advertise",
            f"clients cannot connect to {advertised}; set advertise (--advertise) to the "
            f"{name}HOST:PORT at which they reach this broker",
        )


def _check_tls_files(config: BrokerConfig) -> None:
    has_tls = any(listener.is_tls for listener in config.listeners)
    if has_tls and not config.tls_certificate:
        raise _error(
            "tls_certificate",
            "a listener has TLS; name the PEM file of its certificate (--tls-certificate), which "
            "`millrace tls make-dev-certs` makes for a test",
        )
    for name in ("tls_certificate", "tls_key", "tls_client_ca"):
        if getattr(config, name) and not has_tls:
            raise _error(name, "no listener has TLS; put tls:// before an address of listen")


def _check_broker_tls_files(config: BrokerConfig) -> None:
    given = [name for name in _BROKER_TLS_FILES if getattr(config, name)]
    if given and not config.quorum_members:
        raise _error(given[0], "needs quorum (--quorum): TLS between the brokers of a cluster")
    for name in ("broker_tls_certificate", "broker_tls_ca"):
        if given and name not in given:
            raise _error(
                name,
                f"{given[0]} is set; TLS between brokers needs broker_tls_certificate and "
                "broker_tls_ca, the PEM files of this broker's certificate and of its authorities",
            )


def _check_super_users(config: BrokerConfig) -> None:
    for name in config.super_user_names:
        if not name.startswith("User:") or name == "User:":
            raise _error(
                "super_users", f"{name!r} is no principal; write User:NAME, with ; between several"
            )


def _check_initial_user(config: BrokerConfig) -> None:
    given = [n for n in ("initial_password", "initial_password_file") if getattr(config, n)]
    if given and not config.initial_user:
        raise _error("initial_user", f"{given[0]} is set; name the user that it is for")
    if not config.initial_user:
        return
    if not given:
        raise _error(
            "initial_password",
            "initial_user is set; give its password here or in initial_password_file, or neither",
        )
    if len(given) > 1:
        raise _error(given[1], "initial_password is set too; give one of them")
    if not is_user_name(config.initial_user):
        raise _error(
            "initial_user",
            f"{config.initial_user!r} is no name of a user; it has 1 to {USER_BYTES_MAX} bytes of "
            "printable characters, and is not ANONYMOUS",
        )


def _check_token_keys(config: BrokerConfig) -> None:
    source = config.sasl_oauthbearer_jwks
    if "OAUTHBEARER" in config.mechanisms and not source:
        raise _error(
            "sasl_oauthbearer_jwks",
            "OAUTHBEARER needs the keys of the issuer; name a file, or an https:// address",
        )
    if "://" in source:
        _check_address_of_keys(source)


def _check_address_of_keys(address: str) -> None:
    name = "sasl_oauthbearer_jwks"
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise _error(name, f"{address!r} is no address: {error}") from None
    if "@" in parts.netloc:
        # Not shown: it may have a password.
        raise _error(name, "an address of keys has no user and no password before its host")
    if not parts.hostname or not address.isprintable() or " " in address:
        raise _error(name, f"{address!r} is no address of a host")
    if parts.scheme != "https" and not (parts.scheme == "http" and is_loopback(parts.hostname)):
        raise _error(
            name, f"keys that come by {parts.scheme} can be anyone's; use https:// or a file"
        )


def _check_mechanisms(config: BrokerConfig) -> None:
    for mechanism in config.mechanisms:
        if mechanism not in SASL_MECHANISMS:
            raise _error(
                "sasl_mechanisms",
                f"there is no {mechanism!r}; there are {', '.join(SASL_MECHANISMS)}",
            )
    _check_token_keys(config)
    for listener in config.listeners:
        usable = [each for each in config.mechanisms if listener.is_tls or each in SCRAM_MECHANISMS]
        if listener.is_sasl and not usable:
            raise _error(
                "sasl_mechanisms",
                f"listener {listener.name!r} has none of {config.sasl_mechanisms or 'no mechanism'}"
                "; add SCRAM-SHA-256, or TLS to the listener",
            )


def _check_listener_for_metrics(config: BrokerConfig) -> None:
    """Beyond loopback it needs no consent: what it tells cannot be changed through it."""
    name = "metrics_listen"
    try:
        address = config.metrics_address
    except ValueError:
        raise _error(
            name, f"{config.metrics_listen!r} is neither HOST:PORT nor a port of 0 to 65535"
        ) from None
    if address is not None and address in [each.address for each in config.listeners if address[1]]:
        host, port = address
        raise _error(name, f"{host}:{port} is the address for clients; metrics need another port")


def _check_quorum(config: BrokerConfig) -> None:
    try:
        members = config.quorum_members
    except ValueError as error:
        raise _error("quorum", str(error)) from None
    for broker_id, (host, port) in members.items():
        if not port or host in _ALL_ADDRESSES:
            what = f"port {port}" if not port else host
            raise _error(
                "quorum",
                f"brokers cannot connect to {what} of broker {broker_id}; give the HOST:PORT at "
                "which the others reach it",
            )
    _check_broker_tls_files(config)
    if config.broker_listen_address is None:
        if members:
            raise _error(
                "quorum",
                f"names brokers {', '.join(map(str, members))} and not this one, {config.node_id}; "
                "set node_id (--node-id) to its id, or broker_listen (--broker-listen) to the "
                "HOST:PORT where they reach it",
            )
        return
    _check_listener_for_brokers(config, config.broker_listen_address)


def _check_listener_for_brokers(config: BrokerConfig, address: Address) -> None:
    name = "broker_listen" if config.broker_listen else "quorum"
    if not config.quorum_members:
        raise _error(
            "broker_listen", "needs quorum (--quorum): the brokers of the cluster that may vote"
        )
    host, port = config.broker_address or address
    if not port or not address[1] or host in _ALL_ADDRESSES:
        raise _error(
            "broker_listen",
            f"other brokers cannot connect to {host}:{port}; give a HOST:PORT at which they reach "
            "this broker",
        )
    if not config.has_broker_tls:
        _check_exposure(name, address, config)
    for host, port in (listener.address for listener in config.listeners):
        if not port:
            raise _error(
                "listen",
                "port 0 lets the system choose, and a broker of a cluster needs a fixed port; give "
                "one to --listen",
            )
        if address == (host, port):
            raise _error(
                name,
                f"{host}:{port} is the address for clients too; brokers need a port of their own",
            )
    if config.broker_session_timeout_ms <= config.broker_heartbeat_interval_ms:
        raise _error(
            "broker_session_timeout_ms",
            f"{config.broker_session_timeout_ms} is not more than broker_heartbeat_interval_ms, "
            f"{config.broker_heartbeat_interval_ms}: a broker would be fenced between two of them",
        )


def _check_exposure(
    name: str, address: Address, config: BrokerConfig, *, missing: str = "authentication"
) -> None:
    host, _ = address
    if not config.insecure_listen and not is_loopback(host):
        secure = (
            "put sasl+tls:// before the address"
            if name == "listen"
            else "set broker_tls_certificate and broker_tls_ca"
        )
        raise _error(
            name,
            f"{host} is reachable from other machines and there is no {missing}; listen on "
            f"127.0.0.1, {secure}, or say insecure_listen (--insecure-listen) if you mean it",
        )


def _error(name: str, reason: str) -> ConfigError:
    return ConfigError(name, "configuration", reason)
