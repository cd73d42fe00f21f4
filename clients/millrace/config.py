"""The settings of the clients: names, defaults, and checks.

Owns validation, so that a wrong setting fails where the client is made, in a sentence that names
it. Reads no environment and no files.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar, Literal, TypedDict, get_args

from millrace._kafka_settings import settings_in_a_dict, unknown_setting
from millrace.errors import ConfigError
from millrace_protocol.framing import CLIENT_ID_BYTES_MAX, FRAME_BYTES_MAX
from millrace_protocol.records import HEADER_SIZE, Codec

DEFAULT_PORT = 9092
_TLS_SCHEME = "tls://"
Servers = str | Iterable[str]
"""`"host:port,host:port"` or several such strings; the port is 9092 where none is given. `tls://`
before each of them connects with TLS."""
Acks = Literal["all", 0, 1]
Compression = Literal["none", "gzip", "snappy", "lz4", "zstd"]
Token = str | Callable[[], str | Awaitable[str]]
"""A token of OAuth, or what returns one for each connection."""
SaslMechanism = Literal["", "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN", "OAUTHBEARER"]
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
OutOfRange = Literal["error", "earliest", "latest"]
Overdue = Literal["pause", "leave"]

_BATCH_BYTES = 1_000_000
_REQUEST_BYTES = 1 << 20
_LONE_RECORD_BYTES_MAX = FRAME_BYTES_MAX - 4096
"""The largest record by default: the rest is more than a Produce request has beside it."""
_ACKS = {"all": -1, 1: 1, 0: 0}


def parse_servers(servers: Servers) -> tuple[tuple[str, int], ...]:
    """The addresses to try first, in order. Raises `ConfigError`.

    >>> parse_servers("a:1, b")
    (('a', 1), ('b', 9092))
    >>> parse_servers(["[::1]:9093"])
    (('::1', 9093),)
    >>> parse_servers("tls://a")
    (('a', 9092),)
    """
    return tuple(_address(name.removeprefix(_TLS_SCHEME)) for name in _names(servers))


def has_tls_scheme(servers: Servers) -> bool:
    """Whether the addresses ask for TLS. Raises `ConfigError` where only some do.

    >>> has_tls_scheme("tls://a:9093, tls://b:9093")
    True
    """
    names = _names(servers)
    with_tls = sum(name.startswith(_TLS_SCHEME) for name in names)
    if 0 < with_tls < len(names):
        raise ConfigError("servers: some addresses begin with tls:// and others do not")
    return with_tls > 0


def _names(servers: Servers) -> list[str]:
    if isinstance(servers, Mapping):
        raise ConfigError(f"servers: {settings_in_a_dict(servers)}")
    texts = [servers] if isinstance(servers, str) else list(servers)
    names = [name.strip() for text in texts for name in text.split(",") if name.strip()]
    if not names:
        raise ConfigError("servers: give at least one address, as in 'localhost:9092'")
    return names


def _address(name: str) -> tuple[str, int]:
    host, colon, port = name.rpartition(":")
    if not colon or (name.startswith("[") and name.endswith("]")):
        host, port = name, str(DEFAULT_PORT)
    if not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise ConfigError(f"servers: {name!r} has no port between 1 and 65535 after the colon")
    host = host.removeprefix("[").removesuffix("]")
    if not host:
        raise ConfigError(f"servers: {name!r} has no host before the colon")
    return host, int(port)


@dataclass(frozen=True)
class ClientConfig:
    """What all clients share. `parameters` are the arguments beside the settings."""

    parameters: ClassVar[tuple[str, ...]] = ("servers",)

    client_id: str = "millrace"
    """The name of the client in descriptions of groups; the ids of members begin with it."""
    request_timeout_ms: int = 30_000
    """How long one request may take; the connection is given up when it is over."""
    connect_timeout_ms: int = 10_000
    """How long one attempt to connect to one address may take."""
    retry_backoff_ms: int = 50
    """First pause before a retry, and before a broker that could not be reached is dialed again; it
    doubles up to `retry_backoff_max_ms`, with jitter."""
    retry_backoff_max_ms: int = 1_000
    """Longest pause before a retry."""
    metadata_max_age_ms: int = 300_000
    """How old the client's list of topics, partitions and leaders may become."""
    tls: bool = False
    """Connects with TLS, as `tls://` before an address does. The broker's certificate must be of
    its name or address, and of an authority that is trusted."""
    tls_ca: str = ""
    """PEM file of the authorities that are trusted; empty: those that OpenSSL trusts by default,
    which SSL_CERT_FILE in the environment names."""
    tls_certificate: str = ""
    """PEM file of the client's certificate, which a broker may ask for; empty: it has none."""
    tls_key: str = ""
    """PEM file of the private key; empty: it is in the file of the certificate."""
    username: str = ""
    """Who the client is, for a listener with SASL; empty: it does not say."""
    password: str = field(default="", repr=False)
    """The password of the user."""
    token: Token = field(default="", repr=False)
    """A token of OAuth instead of a name and a password: text, or a function, also an async one,
    that is called for each connection."""
    sasl_mechanism: SaslMechanism = ""
    """How the client proves who it is: SCRAM-SHA-256, SCRAM-SHA-512, PLAIN or OAUTHBEARER. Empty:
    SCRAM-SHA-256 with a name, OAUTHBEARER with a token."""

    @property
    def mechanism(self) -> str:
        """`sasl_mechanism`, with its default resolved; empty without a user."""
        if self.sasl_mechanism:
            return self.sasl_mechanism
        if self.token:
            return OAUTHBEARER
        return "SCRAM-SHA-256" if self.username else ""

    def __post_init__(self) -> None:
        for name in (each.name for each in fields(self)):
            value = getattr(self, name)
            if name in ("batch_bytes", "max_request_bytes") and value is None:
                continue
            if name.endswith(("_ms", "_bytes", "_records")):
                _check_count(name, value, zero=name == "linger_ms")
        if self.tls_key and not self.tls_certificate:
            raise ConfigError("tls_key: needs the certificate of the key, tls_certificate")
        self._check_user()
        if len(self.client_id.encode()) > CLIENT_ID_BYTES_MAX:
            raise ConfigError(f"client_id: longer than {CLIENT_ID_BYTES_MAX} bytes")
        if self.retry_backoff_max_ms < self.retry_backoff_ms:
            raise ConfigError("retry_backoff_max_ms: must not be less than retry_backoff_ms")

    def _check_user(self) -> None:
        if self.sasl_mechanism not in get_args(SaslMechanism):
            known = ", ".join(filter(None, get_args(SaslMechanism)))
            raise ConfigError(f"sasl_mechanism: {self.sasl_mechanism!r} is none of {known}")
        if self.mechanism == OAUTHBEARER:
            if not self.token:
                raise ConfigError("token: OAUTHBEARER needs one")
            if self.username or self.password:
                raise ConfigError("username, password: a client with a token has none")
            return
        if self.token:
            raise ConfigError(f"token: is for OAUTHBEARER, and sasl_mechanism is {self.mechanism}")
        for name, other in (("username", "password"), ("password", "username")):
            if getattr(self, name) and not getattr(self, other):
                raise ConfigError(f"{other}: must be set, because {name} is")
            if self.mechanism and not getattr(self, name):
                raise ConfigError(f"{name}: {self.mechanism} needs one")


def _check_count(name: str, value: object, *, zero: bool) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ConfigError(f"{name}: must be a whole number, not {value!r}")
    if value < 0 or (value == 0 and not zero):
        raise ConfigError(f"{name}: must be {'0 or more' if zero else '1 or more'}, not {value}")


class ClientOptions(TypedDict, total=False):
    """Keyword arguments of every client; the meanings and defaults are `ClientConfig`'s."""

    tls: bool
    tls_ca: str
    tls_certificate: str
    tls_key: str
    username: str
    password: str
    token: Token
    sasl_mechanism: SaslMechanism
    client_id: str
    request_timeout_ms: int
    connect_timeout_ms: int
    retry_backoff_ms: int
    retry_backoff_max_ms: int
    metadata_max_age_ms: int


@dataclass(frozen=True)
class ProducerConfig(ClientConfig):
    """How a producer batches, and what its acks mean."""

    parameters: ClassVar[tuple[str, ...]] = (
        "servers",
        "key_serializer",
        "value_serializer",
        "partitioner",
    )

    acks: Acks = "all"
    """"all": every in-sync replica has the record; 1: the leader has; 0: no broker answers."""
    idempotent: bool | None = None
    """No duplicates from retries. None: on unless acks is 0, which has no response to wait for.
    Without it one batch of a partition is on its way at a time, to keep the order; with it five."""
    compression: Compression = "none"
    """The codec of batches. The broker stores them as they are."""
    linger_ms: int = 5
    """How long a batch whose sends are not awaited may wait for more records."""
    batch_bytes: int | None = None
    """A batch of one partition is sent when it has this much, before `linger_ms` is over. One that
    is too large for its topic's max.message.bytes goes in parts, and those behind it are smaller.
    None: 1,000,000, or what `max_request_bytes` leaves if that is less."""
    buffer_bytes: int = 32 * 1024 * 1024
    """Bound of all records that are not acked yet."""
    max_request_bytes: int | None = None
    """Bound of one request, and so of one record. None: a request is filled up to 1 MiB, and a
    larger record travels alone, up to what brokers take by default (almost 16 MiB). Every record
    needs a topic whose max.message.bytes allows it."""
    delivery_timeout_ms: int = 120_000
    """From `send` to the ack, retries included."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.acks not in _ACKS or self.acks is True or self.acks is False:
            raise ConfigError(f"acks: must be 'all', 1 or 0, not {self.acks!r}")
        if self.idempotent and self.acks == 0:
            raise ConfigError("idempotent: needs acks='all' or 1, and acks is 0")
        if self.compression not in (codec.name.lower() for codec in Codec):
            raise ConfigError(
                f"compression: must be none, gzip, snappy, lz4 or zstd, not {self.compression!r}"
            )
        if self.filled_batch_bytes > (self.max_request_bytes or _LONE_RECORD_BYTES_MAX):
            raise ConfigError(
                "batch_bytes: must not be more than max_request_bytes, or than "
                f"{_LONE_RECORD_BYTES_MAX} without it"
            )
        if self.buffer_bytes < 2 * self.request_bytes:
            raise ConfigError(
                "buffer_bytes: must be at least twice max_request_bytes, which is "
                f"{self.request_bytes} here"
            )
        if self.delivery_timeout_ms < self.linger_ms:
            raise ConfigError("delivery_timeout_ms: must not be less than linger_ms")

    @property
    def is_idempotent(self) -> bool:
        """`idempotent`, with None resolved."""
        return self.acks != 0 if self.idempotent is None else self.idempotent

    @property
    def filled_batch_bytes(self) -> int:
        """`batch_bytes`, with None resolved."""
        if self.batch_bytes is not None:
            return self.batch_bytes
        if self.max_request_bytes is None:
            return _BATCH_BYTES
        return min(_BATCH_BYTES, max(1, self.max_request_bytes - HEADER_SIZE))

    @property
    def request_bytes(self) -> int:
        """What a request is filled up to; a record that is larger travels alone."""
        if self.max_request_bytes is not None:
            return self.max_request_bytes
        return max(_REQUEST_BYTES, self.filled_batch_bytes)

    @property
    def record_bytes_max(self) -> int:
        """The largest record, with its frame."""
        if self.max_request_bytes is not None:
            return max(self.filled_batch_bytes, self.max_request_bytes - HEADER_SIZE)
        return min(_LONE_RECORD_BYTES_MAX, self.buffer_bytes)

    @property
    def wire_acks(self) -> int:
        """`acks` as Produce carries it."""
        return _ACKS[self.acks]

    @property
    def codec(self) -> Codec:
        """`compression` as the codec it names."""
        return Codec[self.compression.upper()]


class ProducerOptions(ClientOptions, total=False):
    """Keyword arguments of `Producer`; the meanings and defaults are `ProducerConfig`'s."""

    acks: Acks
    idempotent: bool | None
    compression: Compression
    linger_ms: int
    batch_bytes: int | None
    buffer_bytes: int
    max_request_bytes: int | None
    delivery_timeout_ms: int


@dataclass(frozen=True)
class ConsumerConfig(ClientConfig):
    """How much a consumer reads ahead, and what it does when its position is not in the log."""

    parameters: ClassVar[tuple[str, ...]] = (
        "servers",
        "start",
        "group",
        "group_instance_id",
        "assignors",
        "on_assigned",
        "on_revoked",
        "on_lost",
        "key_deserializer",
        "value_deserializer",
    )

    fetch_max_wait_ms: int = 500
    """How long a broker may hold a fetch while there is nothing to read."""
    fetch_min_bytes: int = 1
    """A broker holds a fetch until there is so much to read, or `fetch_max_wait_ms` is over."""
    fetch_max_bytes: int = 16 * 1024 * 1024
    """Bound of one answer of one broker."""
    max_partition_bytes: int = 2 * 1024 * 1024
    """Bound of one partition in one answer; a single larger batch is still read. Each connection to
    a broker keeps the room of up to three answers that are no larger than this, or than 8 MiB."""
    buffer_bytes: int = 64 * 1024 * 1024
    """No fetch is sent while this much waits to be consumed."""
    client_rack: str = ""
    """Where the consumer is. Partitions are read from a replica in sync whose broker has the same
    `rack`, where there is one, and else from the leader."""
    on_out_of_range: OutOfRange = "error"
    """What to do when the position is not in the log: raise, or continue at one of its ends."""
    auto_offset_reset: OutOfRange | None = None
    """Where to begin when the position is not in the log, when the group has committed no offset,
    and without a group when no `start` is given. None: `on_out_of_range` decides the first, `start`
    the others."""
    auto_commit: bool = True
    """Commit processed records: those returned before the call that asks for the next."""
    auto_commit_interval_ms: int = 5_000
    """Time from one automatic commit to the next."""
    session_timeout_ms: int = 45_000
    """The group removes a member that sends no heartbeat for longer."""
    heartbeat_interval_ms: int = 3_000
    """How often the member sends a heartbeat, also while the application processes records."""
    rebalance_timeout_ms: int = 300_000
    """How long the other members wait for this one to revoke its partitions and join again."""
    drain_timeout_ms: int = 30_000
    """How long revoked partitions wait for the application to finish their records."""
    max_poll_interval_ms: int = 300_000
    """How long the application may process records before `on_overdue` takes effect."""
    on_overdue: Overdue = "pause"
    """Stop reading until the application asks for more, or leave the group until then."""

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.auto_offset_reset not in (None, "error", "earliest", "latest"):
            raise ConfigError(
                "auto_offset_reset: must be 'error', 'earliest' or 'latest', "
                f"not {self.auto_offset_reset!r}"
            )
        if self.on_overdue not in ("pause", "leave"):
            raise ConfigError(f"on_overdue: must be 'pause' or 'leave', not {self.on_overdue!r}")
        if self.heartbeat_interval_ms >= self.session_timeout_ms:
            raise ConfigError("heartbeat_interval_ms: must be less than session_timeout_ms")
        if self.drain_timeout_ms >= self.rebalance_timeout_ms:
            raise ConfigError("drain_timeout_ms: must be less than rebalance_timeout_ms")
        if self.on_out_of_range not in ("error", "earliest", "latest"):
            raise ConfigError(
                "on_out_of_range: must be 'error', 'earliest' or 'latest', "
                f"not {self.on_out_of_range!r}"
            )
        if self.fetch_max_wait_ms >= self.request_timeout_ms:
            raise ConfigError("fetch_max_wait_ms: must be less than request_timeout_ms")
        if self.max_partition_bytes > self.fetch_max_bytes:
            raise ConfigError("max_partition_bytes: must not be more than fetch_max_bytes")
        if self.fetch_max_bytes > self.buffer_bytes:
            raise ConfigError("fetch_max_bytes: must not be more than buffer_bytes")

    @property
    def start(self) -> Literal["earliest", "latest"]:
        """Where a consumer begins that is told nothing else."""
        return "latest" if self.auto_offset_reset == "latest" else "earliest"

    @property
    def out_of_range_policy(self) -> OutOfRange:
        """`on_out_of_range`, unless `auto_offset_reset` is set."""
        return self.auto_offset_reset or self.on_out_of_range


class ConsumerOptions(ClientOptions, total=False):
    """Keyword arguments of `Consumer`; the meanings and defaults are `ConsumerConfig`'s."""

    fetch_max_wait_ms: int
    fetch_min_bytes: int
    fetch_max_bytes: int
    max_partition_bytes: int
    buffer_bytes: int
    client_rack: str
    on_out_of_range: OutOfRange
    auto_offset_reset: OutOfRange | None
    auto_commit: bool
    auto_commit_interval_ms: int
    session_timeout_ms: int
    heartbeat_interval_ms: int
    rebalance_timeout_ms: int
    drain_timeout_ms: int
    max_poll_interval_ms: int
    on_overdue: Overdue


def configure(cls: type[Any], options: Any) -> Any:
    """An instance of a config class. A keyword it does not know is a `ConfigError`."""
    known = {field.name for field in fields(cls)}
    for name in options:
        if name not in known:
            raise ConfigError(f"{name}: {unknown_setting(name, {*known, *cls.parameters})}")
    return cls(**options)
