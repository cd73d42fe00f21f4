"""ApiVersions (18), versions 0 to 4: the apis of a broker, and its features (KIP-584)."""

from __future__ import annotations

from typing import ClassVar

from millrace_protocol.kafka.requests import KafkaRequest
from millrace_protocol.primitives import INT16, INT32, INT64, STRING
from millrace_protocol.schema import Message, array_of, message, wire


@message
class ApiVersionsRequest(KafkaRequest):
    """Asks for the versions. The client tells its name since version 3 (KIP-511)."""

    flexible_since: ClassVar[int | None] = 3

    client_software_name: str = wire(STRING, "name of the client library", since=3, default="")
    client_software_version: str = wire(STRING, "its version", since=3, default="")


@message
class ApiVersion(Message):
    """One api."""

    api_key: int = wire(INT16, "the api")
    min_version: int = wire(INT16, "the first version")
    max_version: int = wire(INT16, "the last version")


@message
class SupportedFeature(Message):
    """A feature that the broker has."""

    name: str = wire(STRING, "name of the feature")
    min_version: int = wire(INT16, "the first level")
    max_version: int = wire(INT16, "the last level")


@message
class FinalizedFeature(Message):
    """A feature that is in force in the cluster."""

    name: str = wire(STRING, "name of the feature")
    max_version_level: int = wire(INT16, "the last level in force")
    min_version_level: int = wire(INT16, "the first level in force")


@message
class ApiVersionsResponse(Message):
    """The apis, each with its versions."""

    flexible_since: ClassVar[int | None] = 3

    error_code: int = wire(INT16, "error of the request")
    api_keys: tuple[ApiVersion, ...] = wire(array_of(ApiVersion), "the apis")
    throttle_time_ms: int = wire(INT32, "how long the client was held up", since=1, default=0)
    supported_features: tuple[SupportedFeature, ...] = wire(
        array_of(SupportedFeature), "the features of the broker", since=3, tag=0, default=()
    )
    finalized_features_epoch: int = wire(
        INT64, "grows with each change of a feature; -1: unknown", since=3, tag=1, default=-1
    )
    finalized_features: tuple[FinalizedFeature, ...] = wire(
        array_of(FinalizedFeature), "the features in force", since=3, tag=2, default=()
    )
