"""Where a request comes from, in plain values, and what its client may do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from millrace_protocol.acls import CLUSTER_NAME, OPERATIONS_OF, Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError
from millrace_server.authentication.exchange import Exchange
from millrace_server.listeners import PLAIN
from millrace_server.principal import ANONYMOUS
from millrace_server.services.authorizer import Authorizer


@dataclass(slots=True)
class SaslState:
    """How far the authentication of one connection is; `services.authentication` writes it."""

    has_tls: bool
    exchange: Exchange | None = None
    """The one in progress."""
    is_busy: bool = False
    """A step of it is being taken."""
    session_end_ms: int | None = None
    """Monotonic: the client must authenticate again before; None for a session without an end."""
    is_refused: bool = False
    """The connection ends with the response to the request at hand."""


@dataclass(slots=True)
class RequestContext:
    """One connection as the services know it; `client_id` is that of the request at hand.

    A service that a client may ask for something takes the context first, and checks before it
    looks anything up.
    """

    client_host: str
    """Address and port of the peer."""
    authorizer: Authorizer | None
    """None where everything is allowed: to brokers, and to clients of a broker without rights."""
    principal: str = ANONYMOUS
    client_id: str = ""
    listener: str = PLAIN
    """The name of the listener that the peer has connected to."""
    broker_id: int | None = None
    """The broker at the other end, after its BrokerHello; None for clients."""
    fetch_session: object | None = None
    """What the broker at the other end fetches: `services.replica_fetch.FollowerSession`."""
    hold_back: Callable[[int], None] | None = None
    """Takes no further request of the connection before that moment of the monotonic clock; None
    where quotas do not hold: for brokers."""
    held_until_ms: int = 0
    """The last moment that `hold_back` was given."""
    admit: Callable[[str], str] | None = None
    """Takes note of the principal that has authenticated; why the connection is refused, or an
    empty text."""
    knows_throttling: bool = True
    """Whether the client knows the error of a change that comes too early for its quota."""
    is_held_when_refused: bool = False
    """Whether it is held back, too, until such a change may come: Kafka's clients repeat it at once
    (KIP-599)."""
    may_begin_anywhere: bool = False
    """Whether an idempotent producer that a partition does not know may begin at any sequence
    there, as in Kafka."""
    parked_fetches: int = 0
    """Fetches of the connection that wait for more to read."""
    sasl: SaslState | None = None
    """None on a listener without SASL."""
    is_authenticated: bool = True
    """False on a listener with SASL until the client has authenticated."""

    def authenticate(self, principal: str) -> None:
        """The client has proved that it is `principal`.

        Raises `ApiError` where the principal has too many connections; this one ends.
        """
        if self.admit is not None and (refusal := self.admit(principal)):
            raise ApiError(ErrorCode.BROKER_STOPPING, refusal)
        self.principal = principal
        self.is_authenticated = True

    def check(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raises `ApiError` unless the client may do that with the resource."""
        if self.authorizer is not None and not self.allows(operation, kind, name):
            raise self.authorizer.denied(self.principal, self._host, operation, kind, name)

    def check_any(self, operation: Operation, kind: ResourceType) -> None:
        """Raises `ApiError` unless there can be a resource of the type with which it may do that.

        For lists of what the client may see: an empty one would say that there is nothing.
        """
        if self.authorizer is not None and not self.allows_any(operation, kind):
            raise self.authorizer.denied(self.principal, self._host, operation, kind, None)

    def check_topic(self, operation: Operation, name: str) -> None:
        """Raises `ApiError` (TOPIC_AUTHORIZATION_FAILED)."""
        self.check(operation, ResourceType.TOPIC, name)

    def check_group(self, operation: Operation, name: str) -> None:
        """Raises `ApiError` (GROUP_AUTHORIZATION_FAILED)."""
        self.check(operation, ResourceType.GROUP, name)

    def check_cluster(self, operation: Operation) -> None:
        """Raises `ApiError` (CLUSTER_AUTHORIZATION_FAILED)."""
        self.check(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """Whether the client may do that with the resource; for what is left out, not refused."""
        return self.authorizer is None or self.authorizer.allows(
            self.principal, self._host, operation, kind, name
        )

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """Whether there can be a resource of the type with which the client may do that."""
        return self.authorizer is None or self.authorizer.allows_any(
            self.principal, self._host, operation, kind
        )

    def operations(self, kind: ResourceType, name: str) -> int:
        """What the client may do with a resource: bit n for the operation with that number."""
        may = (each for each in OPERATIONS_OF[kind] if self.allows(each, kind, name))
        return sum(1 << each for each in may)

    @property
    def _host(self) -> str:
        """The address of the peer without its port, as entries of access control have it."""
        return self.client_host.rpartition(":")[0].strip("[]")


THIS_BROKER = RequestContext("", None)
"""For what the broker does for itself."""
