"""Topics that a request names by their ids (KIP-516), or by their names."""

from __future__ import annotations

import uuid

from millrace_server.metadata.image import Topic
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services
from millrace_server.topic_config import INTERNAL_TOPIC_PREFIX, check_topic_name


def name_of(
    services: Services, context: RequestContext, name: str, topic_id: uuid.UUID, *, is_by_id: bool
) -> str | None:
    """The name of a topic; None where no topic has the id."""
    if not is_by_id:
        return name
    topic = services.cluster.topic_by_id(context, topic_id)
    return None if topic is None else topic.name


def check_name(name: str) -> None:
    """Raises `ApiError` for a name that no topic can have."""
    if not name.startswith(INTERNAL_TOPIC_PREFIX):
        check_topic_name(name)


def named_topic(services: Services, context: RequestContext, name: str) -> Topic:
    """A topic. Raises `ApiError`, for a name that no topic can have with another code than for one
    that no topic has."""
    check_name(name)
    return services.cluster.topic(context, name)
