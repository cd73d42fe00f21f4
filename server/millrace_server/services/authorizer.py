"""Authorization: may the client of a connection do what it asks for (KIP-11).

One question, `Authorizer.allows`, decides for all dialects: the services ask it through the context
of the connection, before they look up what the request is about. So a client that may not see a
topic cannot tell whether there is one.
"""

from __future__ import annotations

from millrace_protocol.acls import Operation, ResourceType
from millrace_protocol.errors import ErrorCode
from millrace_server.api_error import ApiError, quoted
from millrace_server.config import BrokerConfig
from millrace_server.environment.seams import Clock
from millrace_server.logs import LogRateLimiter, get_logger
from millrace_server.metadata.cache import MetadataCache
from millrace_server.statistics import Registry, metrics

log = get_logger("millrace.authorization")
_CODES = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
}


class Authorizer:
    """The access control entries of the image, and the super users of the settings."""

    def __init__(
        self, cache: MetadataCache, config: BrokerConfig, statistics: Registry, clock: Clock
    ) -> None:
        self.is_on = config.has_authorization
        """Whether clients need rights."""
        self._cache = cache
        self.reload(config)
        self._denials = LogRateLimiter(clock)
        self._counters = {
            kind: statistics.counter(metrics.DENIALS, kind.name.lower()) for kind in _CODES
        }

    def reload(self, config: BrokerConfig) -> None:
        """Takes over the super users: for the next request of each connection."""
        self._super_users = frozenset(config.super_user_names)

    def allows(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str
    ) -> bool:
        """Whether a principal at an address may do something with a resource."""
        return principal in self._super_users or self._cache.image.acls.allows(
            principal, host, operation, kind, name
        )

    def allows_any(
        self, principal: str, host: str, operation: Operation, kind: ResourceType
    ) -> bool:
        """Whether there can be a resource with which the principal may do that."""
        return principal in self._super_users or self._cache.image.acls.allows_any(
            principal, host, operation, kind
        )

    def denied(
        self, principal: str, host: str, operation: Operation, kind: ResourceType, name: str | None
    ) -> ApiError:
        """The error of a request that is not allowed, with any resource of the type for None.

        Counts it, and logs it at a bounded rate.
        """
        self._counters[kind].value += 1
        if (suppressed := self._denials.take()) is not None:
            log.warning(
                "denied",
                principal=principal,
                host=host,
                operation=operation.name,
                resource_type=kind.name,
                resource="any" if name is None else name,
                suppressed=suppressed,
            )
        if name is None:
            what = f"any {kind.name.lower()}"
        elif kind is ResourceType.CLUSTER:
            what = "the cluster"
        else:
            what = f"{kind.name.lower()} {quoted(name)}"
        return ApiError(_CODES[kind], f"{principal} has no right {operation.name} on {what}")
