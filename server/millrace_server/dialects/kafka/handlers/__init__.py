"""One file for each group of apis: a message to service calls, their answer to a message.

A handler gets the version of the request, because later versions say some things differently.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from millrace_protocol.kafka.apis import KafkaApiKey
from millrace_server.dialects.kafka.handlers import (
    api_versions,
    fetch,
    group_membership,
    group_offsets,
    list_offsets,
    metadata,
    produce,
    producer_id,
    topics,
)
from millrace_server.dialects.response_body import Handled
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

Handler = Callable[[Services, RequestContext, Any, int], Handled]

HANDLERS: dict[int, Handler] = {
    KafkaApiKey.PRODUCE: produce.handle,
    KafkaApiKey.FETCH: fetch.handle,
    KafkaApiKey.LIST_OFFSETS: list_offsets.handle,
    KafkaApiKey.METADATA: metadata.handle,
    KafkaApiKey.OFFSET_COMMIT: group_offsets.commit,
    KafkaApiKey.OFFSET_FETCH: group_offsets.fetch,
    KafkaApiKey.FIND_COORDINATOR: group_membership.find_coordinator,
    KafkaApiKey.JOIN_GROUP: group_membership.join,
    KafkaApiKey.HEARTBEAT: group_membership.heartbeat,
    KafkaApiKey.LEAVE_GROUP: group_membership.leave,
    KafkaApiKey.SYNC_GROUP: group_membership.sync,
    KafkaApiKey.API_VERSIONS: api_versions.handle,
    KafkaApiKey.CREATE_TOPICS: topics.create,
    KafkaApiKey.DELETE_TOPICS: topics.delete,
    KafkaApiKey.INIT_PRODUCER_ID: producer_id.handle,
}
