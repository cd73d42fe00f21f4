"""The settings of a broker: what each means, and what follows from several of them.

`config_sources` reads them, `config_checks` refuses values that cannot be.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from millrace_server.group_config import GroupConfig
from millrace_server.limits import Limits
from millrace_server.listeners import (
    Address,
    ListenerConfig,
    host_and_port,
    parse_advertised,
    parse_listeners,
)
from millrace_server.principal_shares import ShareRule
from millrace_server.setting import setting

NODE_ID_MAX = 2**31 - 1
LOOPBACK = "127.0.0.1"


class ConfigError(Exception):
    """A setting is not valid: names the key, where it came from, and what to do."""

    def __init__(self, key: str, source: str, reason: str) -> None:
        super().__init__(f"{source}: {key}: {reason}")
        self.key = key
        self.source = source
        self.reason = reason


@dataclass(frozen=True, slots=True)
class BrokerConfig:
    """Everything a broker is told at start. Times in milliseconds, sizes in bytes.

    `setting(reloads=True)` marks what a running broker takes over (`config_reload`).
    """

    data: str = setting("millrace-data", "Data directory; made when it is not there.")
    listen: str = setting(
        "127.0.0.1:9092",
        "HOST:PORT to listen on; port 0 lets the system choose. Several listeners have commas "
        "between them. tls:// before HOST:PORT makes a listener with TLS, sasl:// one whose "
        "clients must authenticate, sasl+tls:// one with both. NAME= before all that gives a "
        "listener a name: `internal=127.0.0.1:9092, public=sasl+tls://0.0.0.0:9093`.",
    )
    advertise: str = setting(
        "",
        "HOST:PORT that clients are told to connect to; empty: the address listened on. For "
        "others than the first listener NAME=HOST:PORT, with commas between them.",
    )
    insecure_listen: bool = setting(
        False,
        "Allows listening beyond loopback without TLS, or without the authentication of clients: "
        "by `sasl+tls://`, or by `tls://` with `tls_client_ca`.",
    )
    sasl_mechanisms: str = setting(
        "SCRAM-SHA-256,SCRAM-SHA-512",
        "Mechanisms of the listeners with SASL, with commas between them: SCRAM-SHA-256, "
        "SCRAM-SHA-512, and PLAIN and OAUTHBEARER, which are offered with TLS only.",
    )
    sasl_oauthbearer_jwks: str = setting(
        "",
        "The keys with which tokens of OAUTHBEARER are checked: a file with a set of JSON web keys "
        "(RFC 7517), which is read again when it has changed, or its https:// address, which is "
        "asked again every hour and for a key that is not known. "
        "Kafka's `sasl.oauthbearer.jwks.endpoint.url`.",
    )
    sasl_oauthbearer_expected_audience: str = setting(
        "",
        "The audience that a token must name; empty: any. "
        "Kafka's `sasl.oauthbearer.expected.audience`.",
        reloads=True,
    )
    sasl_oauthbearer_expected_issuer: str = setting(
        "",
        "The issuer that a token must name; empty: any. "
        "Kafka's `sasl.oauthbearer.expected.issuer`.",
        reloads=True,
    )
    sasl_oauthbearer_sub_claim_name: str = setting(
        "sub",
        "The claim of a token that names the user. Kafka's `sasl.oauthbearer.sub.claim.name`.",
        reloads=True,
    )
    authorization: str = setting(
        "auto",
        "Whether clients need rights for what they do: on, off, or auto, which is on as soon as "
        "a listener has SASL or `tls_client_ca` is set. Kafka's `authorizer.class.name`.",
    )
    super_users: str = setting(
        "",
        "Principals that may do everything, with semicolons between them: `User:admin;User:ops`. "
        "Kafka's `super.users`.",
        reloads=True,
    )
    initial_user: str = setting(
        "",
        "The user that a new cluster starts with, for listeners that are all for users with a "
        "password: the active controller adds it if the cluster has never had a user. Its "
        "rights are those of `super_users` and of entries. Kafka's `kafka-storage format "
        "--add-scram`.",
    )
    initial_password: str = setting(
        "",
        "The password of `initial_user`; no client is shown it, and it does nothing later.",
        is_secret=True,
    )
    initial_password_file: str = setting(
        "", "A file with the password of `initial_user` in its first line, in its place."
    )
    principal_share_percent: int = setting(
        50,
        "How much of a bound of the broker one principal may use, in percent, where clients "
        "authenticate: of `limits.connections_max`, of the groups and what they take in memory, "
        "of the fetches that wait. 100: all of it. Principals that are super users at the start "
        "may use all of it.",
    )
    failed_authentication_delay_ms: int = setting(
        100,
        "A client that fails to authenticate hears of it after so long; other connections do not "
        "wait. Kafka's `connection.failed.authentication.delay.ms`.",
        reloads=True,
    )
    connections_max_reauth_ms: int = setting(
        0,
        "How long a connection may stay without authenticating again (KIP-368); 0: for ever. "
        "Kafka's `connections.max.reauth.ms`.",
        reloads=True,
    )
    tls_certificate: str = setting(
        "",
        "PEM file with the certificate of the listeners with TLS, and those of its issuers behind "
        "it. A changed file is read again; connections stay.",
    )
    tls_key: str = setting(
        "", "PEM file with the private key; empty: it is in the file of the certificate."
    )
    tls_client_ca: str = setting(
        "",
        "PEM file of the authorities whose clients may connect with TLS: each client needs a "
        "certificate, whose subject is its principal. Empty: clients need none.",
    )
    metrics_listen: str = setting(
        "",
        "HOST:PORT to answer HTTP on, `/metrics` for Prometheus and `/health`: each peer that can "
        "connect can read them. A port alone is one of 127.0.0.1; empty: no such listener.",
    )
    node_id: int = setting(0, "This broker's id in the cluster.")
    quorum: str = setting(
        "",
        "The brokers that vote in the cluster's metadata quorum, as ID@HOST:PORT with commas "
        "between them, the same text on each: the addresses of their listeners for brokers. "
        "Empty: this broker is a cluster of its own.",
    )
    broker_listen: str = setting(
        "",
        "HOST:PORT to listen on for the cluster's other brokers; empty: this broker's address in "
        "`quorum`.",
    )
    broker_tls_certificate: str = setting(
        "",
        "PEM file with this broker's certificate for other brokers, and those of its issuers "
        "behind it: with it all connections between brokers have TLS, on every broker or on none. "
        "It has the host of this broker's address in `quorum`, and is for servers and clients. A "
        "changed file is read again; connections stay. Kafka's `security.inter.broker.protocol`.",
    )
    broker_tls_key: str = setting(
        "", "PEM file with its private key; empty: it is in the file of the certificate."
    )
    broker_tls_ca: str = setting(
        "",
        "PEM file of the authorities of the brokers' certificates. A process with a certificate of "
        "one of them is a broker to this one.",
    )
    quorum_wait_ms: int = setting(
        60_000, "How long a start waits for the metadata quorum to have a leader."
    )
    broker_heartbeat_interval_ms: int = setting(
        400, "How often a broker tells the active controller that it is alive."
    )
    broker_session_timeout_ms: int = setting(
        2_000, "After so long without a heartbeat others lead in a broker's place."
    )
    catch_up_bytes_per_second: int = setting(
        0,
        "How fast this broker sends records to replicas that are not in sync, all of them together;"
        " 0: without a bound. A rate below that of the producers never brings them in sync.",
    )
    replication_factor: int = setting(
        3, "Replicas of a topic that is created without a number; fewer with fewer brokers."
    )
    rack: str = setting(
        "",
        "Where the broker is; the replicas of a partition go to different racks. Empty: unknown.",
    )
    loop: str = setting("uvloop", "Event loop: `uvloop`, or `asyncio` for the standard library's.")
    text_dialect: bool = setting(True, "Whether lines typed into netcat are answered.")
    auto_create_topics: bool = setting(
        False,
        "Whether the Metadata request of a Kafka client that allows it creates a topic that is not "
        "there: a misspelt name is a new topic then. Kafka's `auto.create.topics.enable`.",
    )
    partitions: int = setting(1, "Partitions of a topic that is created without a number.")
    partitions_max: int = setting(
        4_000,
        "Partitions of all topics together. Each holds a descriptor, more while old data is read.",
    )
    housekeeping_interval_ms: int = setting(
        5_000, "How often retention, checkpoints, segment ages and compaction are looked at."
    )
    compaction_bytes_per_second: int = setting(
        16 << 20,
        "How fast compacted topics are read for cleaning: it takes less than a tenth of one core, "
        "and leaves the disk to the producers. Without a bound it reads 200 MB a second, and all "
        "of it.",
    )
    compaction_keys_max: int = setting(
        500_000,
        "Different keys that one cleaning can tell apart, some 70 MB while it runs; a partition "
        "with more that have changed is cleaned in several rounds.",
    )
    scrub_bytes_per_second: int = setting(
        4 << 20,
        "How fast what is on the disk is read in the background, to find what it has changed; 0: "
        "not at all. A disk does not notice 4 MiB/s, and a terabyte takes three days.",
    )
    scrub_interval_ms: int = setting(
        86_400_000,
        "Time from the start of one pass of the scrub to the start of the next, at least.",
    )
    offsets_topic_partitions: int = setting(
        8,
        "Partitions of `__consumer_offsets`, in which groups are kept; counts when it is made. "
        "Each is a directory and an open file. The broker that leads one coordinates its groups, "
        "so more partitions than brokers help nothing.",
    )
    offsets_retention_minutes: int = setting(
        10_080, "How long the offsets of a group without members are kept."
    )
    offset_metadata_max_bytes: int = setting(4_096, "The longest text beside a committed offset.")
    group_min_session_timeout_ms: int = setting(
        6_000, "The shortest session a member may ask for: below it heartbeats are a load."
    )
    group_max_session_timeout_ms: int = setting(
        1_800_000,
        "The longest session a member may ask for: a dead member holds its partitions that long.",
    )
    group_initial_rebalance_delay_ms: int = setting(
        3_000, "How long the first member of a group waits for others; 0 begins at once."
    )
    group_max_size: int = setting(1_000, "Members of one group.")
    group_memory_max_bytes: int = setting(
        64 << 20, "What groups and their members may take in memory: twenty thousand members."
    )
    offsets_memory_max_bytes: int = setting(
        96 << 20,
        "What committed offsets may take in memory: some 300 bytes each, and the text beside it. "
        "They are replayed at start, a million in three seconds.",
    )
    start_wait_ms: int = setting(
        1_000,
        "How long a start waits for all partitions to be open. After that it serves those that "
        "are: what a crash left may take long to look through, and a request for one of the "
        "others is asked to try again.",
    )
    metadata_snapshot_bytes: int = setting(
        1 << 20,
        "Growth of the metadata log from one snapshot of it to the next; a start replays that "
        "much.",
    )
    drain_timeout_ms: int = setting(
        10_000, "How long a stopping broker lets requests finish.", reloads=True
    )
    log_level: str = setting(
        "info", "Least level that is logged: debug, info, warning or error.", reloads=True
    )
    log_format: str = setting(
        "auto", "`json`, `console`, or `auto`: console on a terminal, else json.", reloads=True
    )
    topic: Mapping[str, str] = field(default_factory=dict)
    """Defaults of topic settings, by Kafka's names."""
    limits: Limits = field(default_factory=Limits)
    """What one client and all clients together may use."""
    sources: Mapping[str, str] = field(default_factory=dict, compare=False)
    """No setting: where `load` found each one that was given: `file`, `environment` or `flag`."""

    @property
    def group(self) -> GroupConfig:
        """What coordinators are told. Raises `ValueError` for settings that contradict."""
        return GroupConfig(
            session_timeout_min_ms=self.group_min_session_timeout_ms,
            session_timeout_max_ms=self.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=self.group_initial_rebalance_delay_ms,
            shares=self.shares,
            group_size_max=self.group_max_size,
            memory_bytes=self.group_memory_max_bytes,
            offsets_bytes_max=self.offsets_memory_max_bytes,
            offset_metadata_bytes_max=self.offset_metadata_max_bytes,
            offsets_retention_ms=self.offsets_retention_minutes * 60_000,
        )

    @property
    def listeners(self) -> tuple[ListenerConfig, ...]:
        """The listeners for clients, at least one."""
        listeners = parse_listeners(self.listen)
        advertised = parse_advertised(self.advertise, listeners)
        return tuple(replace(each, advertised=advertised.get(each.name)) for each in listeners)

    @property
    def has_broker_tls(self) -> bool:
        """Whether connections between brokers have TLS."""
        return bool(self.broker_tls_certificate)

    @property
    def has_identities(self) -> bool:
        """Whether clients authenticate, at least on some listener."""
        return bool(self.tls_client_ca) or any(each.is_sasl for each in self.listeners)

    @property
    def has_authorization(self) -> bool:
        """Whether clients need rights."""
        return self.authorization == "on" or (self.authorization == "auto" and self.has_identities)

    @property
    def shares(self) -> ShareRule:
        """How much of a bound one principal may use: all of it where there is only one."""
        percent = self.principal_share_percent if self.has_identities else 100
        return ShareRule(percent, frozenset(self.super_user_names))

    @property
    def super_user_names(self) -> tuple[str, ...]:
        """The principals of `super_users`."""
        return tuple(filter(None, map(str.strip, self.super_users.split(";"))))

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """Those of `sasl_mechanisms`."""
        return tuple(filter(None, map(str.strip, self.sasl_mechanisms.split(","))))

    @property
    def listen_address(self) -> Address:
        """Host and port of the first listener."""
        return self.listeners[0].address

    @property
    def metrics_address(self) -> Address | None:
        """Host and port of `metrics_listen`, None when it is not set; without a host loopback."""
        if not self.metrics_listen:
            return None
        host, _, port = self.metrics_listen.rpartition(":")
        return host_and_port(f"{host or LOOPBACK}:{port}")

    @property
    def quorum_members(self) -> dict[int, Address]:
        """The addresses of the voters by broker id; empty for a cluster of one."""
        return _members(self.quorum)

    @property
    def broker_listen_address(self) -> Address | None:
        """Where this broker listens for others; None for a cluster of one."""
        if self.broker_listen:
            return host_and_port(self.broker_listen)
        return self.quorum_members.get(self.node_id)

    @property
    def broker_address(self) -> Address | None:
        """Where other brokers connect; None for a cluster of one.

        A voter is known to them by `quorum`, whatever it listens on.
        """
        return self.quorum_members.get(self.node_id) or self.broker_listen_address


def _members(text: str) -> dict[int, Address]:
    members: dict[int, Address] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        node_id, separator, address = entry.partition("@")
        if not separator or not node_id.isdecimal():
            raise ValueError(f"{entry!r} is not ID@HOST:PORT with a broker's id before the @")
        if int(node_id) in members:
            raise ValueError(f"broker {int(node_id)} is named twice")
        if int(node_id) > NODE_ID_MAX:
            raise ValueError(f"broker id {node_id} is more than {NODE_ID_MAX}")
        members[int(node_id)] = host_and_port(address)
    return members
