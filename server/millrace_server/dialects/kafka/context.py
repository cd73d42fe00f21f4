"""What a handler of Kafka's protocol knows of its connection."""

from __future__ import annotations

from dataclasses import dataclass

from millrace_server.dialects.kafka.fetch_sessions import FetchSessions
from millrace_server.services.request_context import RequestContext


@dataclass(slots=True, kw_only=True)
class KafkaContext(RequestContext):
    """A connection, and the fetch sessions of all connections."""

    fetch_sessions: FetchSessions
    is_held_when_refused: bool = True
    may_begin_anywhere: bool = True
    has_bare_tokens: bool = False
    """The messages of the exchange of SASL in progress have no headers."""
