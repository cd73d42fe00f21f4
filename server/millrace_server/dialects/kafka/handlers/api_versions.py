"""ApiVersions: which apis there are, in which versions."""

from __future__ import annotations

import re

from millrace_protocol.errors import ErrorCode
from millrace_protocol.kafka.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
)
from millrace_protocol.kafka.apis import KAFKA_APIS, KafkaApiKey
from millrace_server.services.request_context import RequestContext
from millrace_server.services.services import Services

SOFTWARE_SINCE = 3
_SOFTWARE = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?", re.ASCII)
"""A name or version of client software (KIP-511)."""
FEATURE, FEATURE_LEVEL = "metadata.version", 25
"""That of Kafka 4.0, for tools that show it. Features that change what clients do are not named."""
_APIS = tuple(
    ApiVersion(api.key, api.advertised_min, api.max_version) for api in KAFKA_APIS.values()
)


def handle(
    services: Services, context: RequestContext, request: ApiVersionsRequest, version: int
) -> ApiVersionsResponse:
    """Answers at once."""
    software = request.client_software_name, request.client_software_version
    if version >= SOFTWARE_SINCE and not all(map(_SOFTWARE.fullmatch, software)):
        return ApiVersionsResponse(ErrorCode.INVALID_REQUEST, ())
    return ApiVersionsResponse(
        ErrorCode.NONE,
        _APIS,
        supported_features=(SupportedFeature(FEATURE, 7, FEATURE_LEVEL),),
        finalized_features_epoch=0,
        finalized_features=(FinalizedFeature(FEATURE, FEATURE_LEVEL, FEATURE_LEVEL),),
    )


def unsupported_version() -> ApiVersionsResponse:
    """The response, in version 0, to a version that the broker does not have: the client asks
    again in the last version that it names."""
    own = tuple(each for each in _APIS if each.api_key == KafkaApiKey.API_VERSIONS)
    return ApiVersionsResponse(ErrorCode.UNSUPPORTED_VERSION, own)
