"""Topics that a request names by their ids (KIP-516), or by their names."""

from __future__ import annotations

import uuid

from millrace_server.services.services import Services


def name_of(services: Services, name: str, topic_id: uuid.UUID, *, is_by_id: bool) -> str | None:
    """The name of a topic; None where no topic has the id."""
    if not is_by_id:
        return name
    topic = services.cluster.topic_by_id(topic_id)
    return None if topic is None else topic.name
